// The viewer: controls above, a grid of panes (a row per view, a column per plan), the time below.

const VIEWS = {
  truth: "Truth",
  forecast: "Forecast",
  difference: "Difference",
};
const EGO = { front: 2.9, back: -1.9, half: 0.95, floor: -1.65, roof: -0.2 };  // around the lidar on its roof, metres
const THEMES = {
  dark: { page: [0.08, 0.09, 0.12], ground: [0.055, 0.063, 0.086], faint: [0.2, 0.22, 0.27], grey: [0.3, 0.33, 0.38],
    ego: [1, 1, 1], way: [1, 0.47, 0.78] },
  light: { page: [1, 1, 1], ground: [0.955, 0.96, 0.97], faint: [0.8, 0.82, 0.85], grey: [0.72, 0.74, 0.78],
    ego: [0.05, 0.05, 0.08], way: [0.78, 0, 0.47] },
};

class Viewer {
  constructor(root, description, clouds) {
    this.root = root;
    this.description = description;
    this.clouds = clouds;
    this.state = {
      horizon: description.horizons.length - 1, frame: 0, model: description.models[0], by: "height",
      views: { truth: true, forecast: true, difference: true }, rides: false, linked: true, playing: false,
    };
    this.cameras = new Map();
    this.drawn = 0;
    this.build();
    this.pen = new Pen(this.canvas, description.colours);
    this.listen();
    this.chooseHorizon(this.state.horizon);
  }

  get horizon() { return this.description.horizons[this.state.horizon]; }
  get theme() { return THEMES[currentTheme()]; }

  build() {
    this.root.querySelector(".viewer-message").remove();
    this.controls = child(this.root, "div", "viewer-controls");
    this.stage = child(this.root, "div", "viewer-stage");
    this.canvas = child(this.stage, "canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    this.grid = child(this.stage, "div", "viewer-grid");
    this.timeRow = child(this.root, "div", "viewer-time");
    this.legend = child(this.root, "div", "viewer-legend");
    this.help = child(this.root, "p", "viewer-help");
    this.help.textContent = "Drag to orbit, right button or shift to pan, wheel or pinch to zoom, double click to "
      + "return. With the keyboard: Tab to a picture, then arrows, + and -; arrows on the slider move the time.";
    const { horizons, models } = this.description;
    if (horizons.length > 1) {
      choice(this.controls, "Forecast of", horizons.map((h, i) => [String(i), h.name]), String(this.state.horizon),
        (value) => this.chooseHorizon(Number(value)), "horizon");
    }
    if (models.length > 1) {
      choice(this.controls, "Forecast by", models.map((m) => [m, m]), this.state.model, (value) => {
        this.state.model = value;
        this.arrange();
      }, "model");
    }
    choice(this.controls, "Colour", [["height", "by height"], ["distance", "by distance"], ["error", "by error"]],
      this.state.by, (value) => { this.state.by = value; this.arrange(); }, "colour");
    choice(this.controls, "Camera", [["stays", "stays with the street"], ["rides", "rides with the ego"]], "stays",
      (value) => { this.state.rides = value === "rides"; this.changed(); }, "camera");
    for (const [view, words] of Object.entries(VIEWS)) {
      tick(this.controls, words, true, (on) => { this.state.views[view] = on; this.arrange(); }, view);
    }
    tick(this.controls, "Linked cameras", true, (on) => { this.state.linked = on; this.linkTo(this.lastCamera); },
      "linked");
    this.playButton = child(this.timeRow, "button", "viewer-play");
    this.playButton.type = "button";
    this.slider = child(this.timeRow, "input", "viewer-slider");
    Object.assign(this.slider, { type: "range", min: 0, step: 1 });
    this.slider.setAttribute("aria-label", "Time");
    this.clock = child(this.timeRow, "output", "viewer-clock");
  }

  listen() {
    this.playButton.addEventListener("click", () => this.play(!this.state.playing));
    this.slider.addEventListener("input", () => { this.play(false); this.chooseFrame(Number(this.slider.value)); });
    new ResizeObserver(() => this.changed()).observe(this.stage);
    this.canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    this.canvas.addEventListener("webglcontextrestored", () => { this.pen.prepare(); this.changed(); });
    themeListeners.push(() => this.changed());
    this.play(false);
  }

  chooseHorizon(index) {
    this.state.horizon = index;
    this.slider.max = this.horizon.times.length - 1;
    this.arrange();
    this.chooseFrame(this.horizon.times.length - 1);  // the hardest frame first: everything else is one drag away
  }

  chooseFrame(index) {
    this.state.frame = index;
    this.slider.value = index;
    const time = this.horizon.times[index], past = index < this.horizon.past.length;
    const words = Math.abs(time) < 1e-3 ? "now" : `${time > 0 ? "+" : "−"}${Math.abs(time).toFixed(1)} s`;
    this.clock.textContent = past ? `${words} (past: what the model saw)` : `${words} (future)`;
    this.slider.setAttribute("aria-valuetext", this.clock.textContent);
    this.label();
    this.changed();
  }

  play(on) {
    this.state.playing = on;
    this.playButton.textContent = on ? "❚❚ Pause" : "▶ Play";
    clearTimeout(this.timer);
    if (!on) return;
    const { times } = this.horizon;
    if (this.state.frame === times.length - 1) this.chooseFrame(0);
    const step = () => {
      if (this.state.frame === times.length - 1) { this.play(false); return; }
      this.chooseFrame(this.state.frame + 1);
      this.timer = setTimeout(step, wait());
    };
    const wait = () => {  // as fast as the world
      const next = Math.min(this.state.frame + 1, times.length - 1);
      return Math.max(80, 1000 * (times[next] - times[this.state.frame]));
    };
    this.timer = setTimeout(step, wait());
  }

  // A pane per view and plan; the words of a pane are HTML, its points are drawn behind it.
  arrange() {
    const views = Object.keys(VIEWS).filter((view) => this.state.views[view]);
    this.grid.replaceChildren();
    this.panes = [];
    this.grid.style.setProperty("--plans", this.horizon.plans.length);
    // A plan without truth has no panes for it: only what a log really holds is shown.
    const shows = (view, plan) => view === "forecast" || plan.truth.length > 0;
    const rows = views.filter((view) => this.horizon.plans.some((plan) => shows(view, plan)));
    for (const view of rows) {
      this.horizon.plans.forEach((plan, column) => {
        if (!shows(view, plan)) return;
        const element = child(this.grid, "div", "viewer-pane");
        element.style.gridColumn = column + 1;
        element.style.gridRow = rows.indexOf(view) + 1;
        const key = `${view} ${column}`;
        if (!this.cameras.has(key)) this.cameras.set(key, { ...(this.lastCamera || DEFAULT_CAMERA) });
        element.tabIndex = 0;
        element.dataset.pane = `${view} ${plan.name}`;
        element.setAttribute("role", "img");
        const pane = {
          element, view, plan, key, words: child(element, "div", "viewer-words"), note: child(element, "div", "viewer-note"),
        };
        listenToHands(element, () => this.cameras.get(key), (camera) => this.linkTo(camera));
        this.panes.push(pane);
      });
    }
    this.label();
    this.showLegend();
    this.changed();
  }

  linkTo(camera) {
    this.lastCamera = camera || this.lastCamera;
    if (this.state.linked && this.lastCamera) {
      for (const other of this.cameras.values()) if (other !== this.lastCamera) Object.assign(other, this.lastCamera);
    }
    this.changed();
  }

  label() {
    if (!this.panes) return;
    const past = this.state.frame < this.horizon.past.length;
    for (const { element, view, plan, words, note } of this.panes) {
      const { cloud } = this.contentOf(view, plan);
      words.textContent = `${VIEWS[view]} · ${plan.name}`;
      note.textContent = !cloud ? this.whyEmpty(view, plan) : cloud.count ? "" : "There are no points here.";
      const shown = past ? "the past, the same for every plan" : plan.caption;
      element.title = shown;
      element.setAttribute("aria-label", `${VIEWS[view]}, plan ${plan.name}, ${this.clock.textContent}. ${shown}`);
    }
  }

  whyEmpty(view, plan) {
    if (!plan.forecasts[this.state.model] && view !== "truth") return `${this.state.model} is not shown for this plan.`;
    return "The log has no true sweep here.";
  }

  contentOf(view, plan) {
    const { frame, model } = this.state, count = this.horizon.past.length;
    if (frame < count) return { cloud: this.clouds[this.horizon.past[frame]] };
    const k = frame - count;
    const truth = this.clouds[plan.truth[k]], forecast = plan.forecasts[model] && this.clouds[plan.forecasts[model][k]];
    if (view === "truth") return { cloud: truth };
    if (view === "forecast") return { cloud: forecast };
    return truth && forecast ? { cloud: forecast, under: truth } : {};
  }

  showLegend() {
    this.legend.replaceChildren();
    const bars = [[this.state.by, { height: "height above the lidar", distance: "distance from the ego", error:
      "error: distance from a forecast point to the nearest true point (truth and past are grey)" }[this.state.by]]];
    if (this.state.views.difference && this.state.by !== "error") {
      bars.push(["error", "in the difference: from a forecast point to the nearest true point (truth is grey)"]);
    }
    for (const [name, words] of bars) {
      const { range, table } = this.description.colours[name], colours = bytesOf(table), stops = [];
      for (let i = 0; i < 256; i += 15) stops.push(`rgb(${colours[3 * i]},${colours[3 * i + 1]},${colours[3 * i + 2]})`);
      const item = child(this.legend, "span", "viewer-bar");
      child(item, "span").textContent = `${range[0]} m`;
      child(item, "span", "viewer-colours").style.background = `linear-gradient(to right, ${stops.join(",")})`;
      const more = name === "error" ? " or more" : "";
      child(item, "span").textContent = `${range[1]} m${more} · ${words}`;
    }
    if (this.description.thinned) {
      child(this.legend, "span", "viewer-bar").textContent = "Large clouds are thinned evenly for this view; the scores use every point.";
    }
  }

  changed() {  // draw once, however much changed before the next picture
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    const ratio = Math.min(2, window.devicePixelRatio || 1), box = this.stage.getBoundingClientRect();
    const width = Math.max(1, Math.round(box.width * ratio)), height = Math.max(1, Math.round(box.height * ratio));
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    if (this.pen.gl.isContextLost()) return;
    this.pen.clear(this.theme.page);
    for (const pane of this.panes) {
      const place = pane.element.getBoundingClientRect();
      this.drawPane(pane, {
        x: Math.round((place.x - box.x) * ratio), y: Math.round((place.y - box.y) * ratio),
        width: Math.round(place.width * ratio), height: Math.round(place.height * ratio),
      });
    }
    this.drawn += 1;
    this.root.dataset.drawn = this.drawn;
  }

  drawPane({ view, plan, key }, rectangle) {
    const { theme, pen } = this, { frame, by, rides } = this.state;
    const clip = clipFromStreet(this.cameras.get(key), rectangle.width / rectangle.height);
    const pose = plan.poses[frame];
    const clipFromLidar = rides ? clip : multiplied(clip, pose);
    const fromStreet = rides ? multiplied(clip, inverted(pose)) : clip;
    pen.frame(rectangle, theme.ground);
    const ground = EGO.floor;
    for (const radius of [10, 20, 30, 40]) pen.line(ring(radius, ground), clipFromLidar, theme.faint, true);
    const { cloud, under } = this.contentOf(view, plan);
    const colourBy = view === "difference" && under ? "error" : by;
    const grey = colourBy === "error" && !(cloud && cloud.hasError);
    if (under) pen.cloud(under, clipFromLidar, { by: "height", sizeM: 0.1, plain: theme.grey });
    pen.cloud(cloud, clipFromLidar, { by: colourBy, sizeM: 0.16, plain: grey ? theme.grey : null });
    const way = [];
    for (const at of plan.poses.slice(this.horizon.past.length - 1)) {
      way.push(...at.slice(0, 3).map((_, i) => at[12 + i] + ground * at[8 + i]));
    }
    pen.line(way, fromStreet, theme.way, false);
    for (const outline of egoOutlines()) pen.line(outline, clipFromLidar, theme.ego, true);
  }
}

function egoOutlines() {
  const { front, back, half, floor, roof } = EGO;
  const loop = (z) => [front, half, z, front, -half, z, back, -half, z, back, half, z];
  const nose = [front, half, floor, front, half, roof, front + 0.9, 0, floor, front, -half, roof, front, -half, floor];
  return [loop(floor), loop(roof), nose];
}

function inverted(m) {  // of a rigid motion
  const out = [m[0], m[4], m[8], 0, m[1], m[5], m[9], 0, m[2], m[6], m[10], 0, 0, 0, 0, 1];
  for (let row = 0; row < 3; row++) {
    out[12 + row] = -(m[12] * m[4 * row] + m[13] * m[4 * row + 1] + m[14] * m[4 * row + 2]);
  }
  return out;
}

function child(parent, tag, name) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  parent.append(made);
  return made;
}

function choice(parent, words, options, value, chosen, name) {
  const label = child(parent, "label");
  label.append(`${words} `);
  const select = child(label, "select");
  select.name = name;
  for (const [key, shown] of options) select.add(new Option(shown, key, key === value, key === value));
  select.addEventListener("change", () => chosen(select.value));
}

function tick(parent, words, value, chosen, name) {
  const label = child(parent, "label");
  const box = child(label, "input");
  Object.assign(box, { type: "checkbox", checked: value, name });
  label.append(` ${words}`);
  box.addEventListener("change", () => chosen(box.checked));
}

// Dark or light: as the desktop prefers, until the button is used.
const themeListeners = [];
const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
function currentTheme() {
  return document.documentElement.dataset.theme || (prefersDark.matches ? "dark" : "light");
}
prefersDark.addEventListener("change", () => themeListeners.forEach((tell) => tell()));

function addThemeButton() {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "theme-button" });
  const name = () => { button.textContent = currentTheme() === "dark" ? "Light page" : "Dark page"; };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = currentTheme() === "dark" ? "light" : "dark";
    themeListeners.forEach((tell) => tell());
  });
  themeListeners.push(name);
  name();
  document.body.prepend(button);
}

async function begin(root) {
  const message = root.querySelector(".viewer-message");
  message.textContent = "Unpacking the point clouds …";
  const description = JSON.parse(root.querySelector(".viewer-description").textContent);
  const packed = root.querySelector(".viewer-clouds");
  try {
    const clouds = await unpacked(description, packed.textContent);
    packed.remove();
    root.viewer = new Viewer(root, description, clouds);
    root.dataset.state = "ready";
  } catch (error) {
    root.replaceChildren(message);
    root.dataset.state = "failed";
    message.textContent = `The 3D view cannot be shown: ${error.message}. The pictures and the film below show the same clouds.`;
  }
}

addThemeButton();
document.querySelectorAll(".viewer").forEach(begin);
