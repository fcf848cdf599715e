// Bytes as people read them: 1.5 GiB. For pictures that speak of memory.

const UNITS = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];

function bytesText(value) {
  const [unit, size] = UNITS.find((unit) => value >= unit[1]) || ["B", 1];
  return `${Number((value / size).toFixed(2)).toLocaleString("en-US")} ${unit}`;
}
