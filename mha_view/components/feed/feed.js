// Lays what it is given where its picture finds it, and wakes the picture: JSON, and behind it the numbers it points to.
export default function ({ data }) {
  const bytes = data.slice(), start = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const floats = ([from, count]) => new Float32Array(bytes.buffer, start + 4 * from, count);
  const told = JSON.parse(new TextDecoder().decode(bytes.subarray(4, start)), (_, value) => (value?.float32 ? floats(value.float32) : value));
  const feeds = (globalThis.headroomFeeds ??= {}), mine = (feeds[told.picture] ??= {});
  mine[told.name] = told.data;
  mine.wake?.();
}
