// Lays what it is given where its picture finds it, and wakes the picture.
export default function ({ data }) {
  const feeds = (globalThis.headroomFeeds ??= {}), mine = (feeds[data.picture] ??= {});
  mine[data.name] = data.data;
  mine.wake?.();
}
