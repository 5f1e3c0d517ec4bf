// A camera that orbits a place on the ground. Matrices are arrays of 16, column by column; z is up.

const DEFAULT_CAMERA = { yaw: Math.PI, pitch: 0.7, distance: 36, x: 5, y: 0 };  // behind the ego, looking forward
const FIELD_OF_VIEW = 0.8;

function multiplied(a, b) {
  const out = new Float32Array(16);
  for (let column = 0; column < 4; column++) {
    for (let row = 0; row < 4; row++) {
      let sum = 0;
      for (let k = 0; k < 4; k++) sum += a[4 * k + row] * b[4 * column + k];
      out[4 * column + row] = sum;
    }
  }
  return out;
}

function translated(x, y, z) {
  return [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, x, y, z, 1];
}

// From the street to the picture. The camera stands at `yaw` around its target, seen from above, `pitch` above ground.
function clipFromStreet(camera, aspect) {
  const { yaw, pitch, distance } = camera;
  const cy = Math.cos(yaw), sy = Math.sin(yaw), cp = Math.cos(pitch), sp = Math.sin(pitch);
  const right = [-sy, cy, 0], up = [-sp * cy, -sp * sy, cp], back = [cp * cy, cp * sy, sp];
  const eye = [camera.x + distance * back[0], camera.y + distance * back[1], distance * back[2]];
  const dot = (a) => -(a[0] * eye[0] + a[1] * eye[1] + a[2] * eye[2]);
  const view = [
    right[0], up[0], back[0], 0, right[1], up[1], back[1], 0, right[2], up[2], back[2], 0,
    dot(right), dot(up), dot(back), 1,
  ];
  const near = Math.max(0.3, distance / 100), far = distance * 4 + 300;
  const scale = 1 / Math.tan(FIELD_OF_VIEW / 2);
  const projection = [
    scale / aspect, 0, 0, 0, 0, scale, 0, 0, 0, 0, (far + near) / (near - far), -1,
    0, 0, (2 * far * near) / (near - far), 0,
  ];
  return multiplied(projection, view);
}

function orbit(camera, dx, dy) {  // in pixels of the screen
  camera.yaw -= dx * 0.008;
  camera.pitch = Math.min(1.5707, Math.max(0.05, camera.pitch + dy * 0.008));
}

function pan(camera, dx, dy, height) {  // what is under the pointer stays under it, as far as the ground is flat
  const metres = (2 * camera.distance * Math.tan(FIELD_OF_VIEW / 2)) / height;
  const along = (dy * metres) / Math.max(0.35, Math.sin(camera.pitch)), across = dx * metres;
  const cy = Math.cos(camera.yaw), sy = Math.sin(camera.yaw);
  camera.x += -along * cy + across * sy;
  camera.y += -along * sy - across * cy;
  const reach = 250;
  camera.x = Math.min(reach, Math.max(-reach, camera.x));
  camera.y = Math.min(reach, Math.max(-reach, camera.y));
}

function zoom(camera, factor) {
  camera.distance = Math.min(250, Math.max(4, camera.distance * factor));
}

// Mouse: drag orbits, right button or shift pans, wheel zooms, double click resets. Touch: one finger orbits, two pinch
// and pan. Keys on a focused pane: arrows orbit, + and - zoom, 0 resets.
function listenToHands(element, cameraOf, changed) {
  const fingers = new Map();
  element.addEventListener("contextmenu", (event) => event.preventDefault());
  element.addEventListener("pointerdown", (event) => {
    if (event.target.closest("button, select, input, a")) return;
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    element.setPointerCapture(event.pointerId);
  });
  const lift = (event) => fingers.delete(event.pointerId);
  element.addEventListener("pointerup", lift);
  element.addEventListener("pointercancel", lift);
  element.addEventListener("pointermove", (event) => {
    const last = fingers.get(event.pointerId);
    if (!last) return;
    const dx = event.clientX - last.x, dy = event.clientY - last.y;
    const camera = cameraOf(), height = element.clientHeight;
    if (fingers.size === 2) {
      const other = [...fingers.entries()].find(([id]) => id !== event.pointerId)[1];
      const before = Math.hypot(last.x - other.x, last.y - other.y);
      const after = Math.hypot(event.clientX - other.x, event.clientY - other.y);
      zoom(camera, before / Math.max(1, after));
      pan(camera, dx / 2, dy / 2, height);
    } else if (event.shiftKey || (event.buttons & 6)) {
      pan(camera, dx, dy, height);
    } else {
      orbit(camera, dx, dy);
    }
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    changed(camera);
  });
  element.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 30 : 1;
    zoom(cameraOf(), Math.exp(Math.max(-300, Math.min(300, event.deltaY * lines)) * 0.0012));
    changed(cameraOf());
  }, { passive: false });
  element.addEventListener("dblclick", () => {
    Object.assign(cameraOf(), DEFAULT_CAMERA);
    changed(cameraOf());
  });
  element.addEventListener("keydown", (event) => {
    const camera = cameraOf();
    const act = {
      ArrowLeft: () => orbit(camera, -25, 0), ArrowRight: () => orbit(camera, 25, 0),
      ArrowUp: () => orbit(camera, 0, 15), ArrowDown: () => orbit(camera, 0, -15),
      "+": () => zoom(camera, 0.85), "=": () => zoom(camera, 0.85), "-": () => zoom(camera, 1 / 0.85),
      0: () => Object.assign(camera, DEFAULT_CAMERA),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
    changed(camera);
  });
}
