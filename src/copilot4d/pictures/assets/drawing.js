// Points and lines by WebGL. One canvas lies behind all panes; each pane is drawn into its own rectangle of it.

const POINT_SHADER = `
attribute vec3 place;          // whole centimetres, in the cloud's own lidar frame
attribute float error;         // in steps, 255: this far or further
uniform mat4 clipFromLidar;
uniform vec4 weights;          // of height, distance, error (metres each), and a constant: the colour's place, 0 to 1
uniform float errorStep;
uniform float size;
varying float level;
void main() {
  vec3 metres = place * 0.01;
  gl_Position = clipFromLidar * vec4(metres, 1.0);
  gl_PointSize = clamp(size / gl_Position.w, 1.0, 9.0);
  level = dot(weights, vec4(metres.z, length(metres.xy), error * errorStep, 1.0));
}`;
const POINT_INK = `
precision mediump float;
uniform sampler2D table;
uniform float row;
uniform vec4 plain;            // a plain colour instead, where its alpha is not 0
varying float level;
void main() {
  vec3 ink = texture2D(table, vec2(clamp(level, 0.002, 0.998), row)).rgb;
  gl_FragColor = vec4(mix(ink, plain.rgb, plain.a), 1.0);
}`;
const LINE_SHADER = `
attribute vec3 place;
uniform mat4 clipFromStreet;
void main() { gl_Position = clipFromStreet * vec4(place, 1.0); }`;
const LINE_INK = `
precision mediump float;
uniform vec3 ink;
void main() { gl_FragColor = vec4(ink, 1.0); }`;
const ROWS = ["height", "distance", "error"];

class Pen {
  constructor(canvas, colours) {
    const gl = canvas.getContext("webgl", { antialias: true, alpha: false });
    if (!gl) throw new Error("this browser has no WebGL, or it is switched off");
    this.canvas = canvas;
    this.colours = colours;
    this.gl = gl;
    this.prepare();
  }

  prepare() {  // also after the graphics card was taken away and came back
    const gl = this.gl;
    this.points = program(gl, POINT_SHADER, POINT_INK);
    this.lines = program(gl, LINE_SHADER, LINE_INK);
    this.buffers = new Map();
    this.lineBuffer = gl.createBuffer();
    gl.enable(gl.DEPTH_TEST);
    gl.enable(gl.SCISSOR_TEST);
    const table = new Uint8Array(4 * 256 * 4);  // a row each, and one to spare: sizes are powers of two
    ROWS.forEach((name, row) => {
      const colours = bytesOf(this.colours[name].table);
      for (let i = 0; i < 256; i++) {
        for (let c = 0; c < 3; c++) table[(row * 256 + i) * 4 + c] = colours[3 * i + c];
        table[(row * 256 + i) * 4 + 3] = 255;
      }
    });
    gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, 256, 4, 0, gl.RGBA, gl.UNSIGNED_BYTE, table);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
  }

  clear(colour) {
    const gl = this.gl;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.scissor(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(...colour, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
  }

  frame(rectangle, ground) {  // in pixels of the canvas, from its upper left corner
    const gl = this.gl, { x, y, width, height } = rectangle;
    gl.viewport(x, this.canvas.height - y - height, width, height);
    gl.scissor(x, this.canvas.height - y - height, width, height);
    gl.clearColor(...ground, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    this.height = height;
  }

  cloud(cloud, clipFromLidar, look) {
    if (!cloud || !cloud.count) return;
    const gl = this.gl, { points } = this;
    gl.useProgram(points.program);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.bufferOf(cloud));
    gl.enableVertexAttribArray(points.place);
    gl.vertexAttribPointer(points.place, 3, gl.SHORT, false, 8, 0);
    gl.enableVertexAttribArray(points.error);
    gl.vertexAttribPointer(points.error, 1, gl.UNSIGNED_BYTE, false, 8, 6);
    gl.uniformMatrix4fv(points.at("clipFromLidar"), false, clipFromLidar);
    const [low, high] = this.colours[look.by].range, scale = 1 / (high - low);
    const weights = [0, 0, 0, -low * scale];
    weights[ROWS.indexOf(look.by)] = scale;
    gl.uniform4fv(points.at("weights"), weights);
    gl.uniform1f(points.at("errorStep"), cloud.errorStep);
    gl.uniform1f(points.at("row"), (ROWS.indexOf(look.by) + 0.5) / 4);
    gl.uniform1f(points.at("size"), look.sizeM * this.height);
    gl.uniform4fv(points.at("plain"), look.plain ? [...look.plain, 1] : [0, 0, 0, 0]);
    gl.drawArrays(gl.POINTS, 0, cloud.count);
  }

  line(places, clipFromStreet, ink, closed) {  // places: x, y, z, x, y, z, ...
    const gl = this.gl, { lines } = this;
    gl.useProgram(lines.program);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.lineBuffer);
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(places), gl.STREAM_DRAW);
    gl.enableVertexAttribArray(lines.place);
    gl.vertexAttribPointer(lines.place, 3, gl.FLOAT, false, 0, 0);
    gl.uniformMatrix4fv(lines.at("clipFromStreet"), false, clipFromStreet);
    gl.uniform3fv(lines.at("ink"), ink);
    gl.drawArrays(closed ? gl.LINE_LOOP : gl.LINE_STRIP, 0, places.length / 3);
  }

  bufferOf(cloud) {  // uploaded when it is first seen
    const gl = this.gl;
    let buffer = this.buffers.get(cloud);
    if (!buffer) {
      buffer = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.bufferData(gl.ARRAY_BUFFER, cloud.bytes, gl.STATIC_DRAW);
      this.buffers.set(cloud, buffer);
    }
    return buffer;
  }
}

function program(gl, vertex, fragment) {
  const made = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost()) {
      throw new Error(`the graphics driver refused a program: ${gl.getShaderInfoLog(shader)}`);
    }
    gl.attachShader(made, shader);
  }
  gl.linkProgram(made);
  const places = new Map();
  return {
    program: made,
    place: gl.getAttribLocation(made, "place"),
    error: gl.getAttribLocation(made, "error"),
    at(name) {
      if (!places.has(name)) places.set(name, gl.getUniformLocation(made, name));
      return places.get(name);
    },
  };
}

function ring(radius, z) {
  const places = [];
  for (let i = 0; i < 72; i++) {
    places.push(radius * Math.cos((i * Math.PI) / 36), radius * Math.sin((i * Math.PI) / 36), z);
  }
  return places;
}
