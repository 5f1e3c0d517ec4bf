// The clouds of a page: base64, then zlib, then differences from point to point in whole centimetres.

function bytesOf(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function inflated(bytes) {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser is too old to unpack the clouds (it lacks DecompressionStream); any of 2023 or later can");
  }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// -> clouds with 8 bytes a point, as the graphics card reads them: x, y, z as 16-bit integers, the error, a spare byte.
async function unpacked(description, base64) {
  const bytes = await inflated(bytesOf(base64));
  const total = description.clouds.reduce((sum, [count]) => sum + count, 0);
  const places = new Int16Array(4 * total), all = new Uint8Array(places.buffer);
  for (let axis = 0; axis < 3; axis++) {
    let value = 0;
    for (let i = 0; i < total; i++) {
      const at = axis * total + i;
      value = ((value + (bytes[at] | (bytes[3 * total + at] << 8))) << 16) >> 16;
      places[4 * i + axis] = value;
    }
  }
  let start = 0, error = 6 * total;
  return description.clouds.map(([count, hasError]) => {
    if (hasError) for (let i = 0; i < count; i++) all[8 * (start + i) + 6] = bytes[error++];
    const cloud = {
      count, hasError: Boolean(hasError), errorStep: description.errorStep,
      bytes: all.subarray(8 * start, 8 * (start + count)),
    };
    start += count;
    return cloud;
  });
}
