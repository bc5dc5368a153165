const day = 86_400_000;
const units: [name: string, ms: number][] = [
  ['d', day],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1_000],
];

export function number(value: number): string {
  return value.toLocaleString('en-US', { maximumFractionDigits: value < 10 ? 1 : 0 });
}

/** E.g. `12`, `12.3 k`, `4.1 M`. */
export function shortNumber(value: number): string {
  if (value >= 1e6) return `${number(Math.round(value / 1e5) / 10)} M`;
  if (value >= 1e4) return `${number(Math.round(value / 100) / 10)} k`;
  return number(value);
}

/** E.g. `340 ms`, `2.1 s`, `5 min`, `3 d`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`;
  const [name, size] = units.find(([, each]) => ms >= each) ?? ['s', 1_000];
  return `${Math.floor(ms / size)} ${name}`;
}

export function ago(time: string, now: number): string {
  const ms = now - Date.parse(time);
  if (Math.abs(ms) < 2_000) return 'now';
  return ms > 0 ? `${duration(ms)} ago` : `in ${duration(-ms)}`;
}

const full = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

export function exactTime(time: string): string {
  return full.format(new Date(time));
}

export function bytes(count: number): string {
  if (count < 1_024) return `${count} bytes`;
  return count < 1_048_576 ? `${number(count / 1_024)} KiB` : `${number(count / 1_048_576)} MiB`;
}

export function plural(count: number, noun: string): string {
  return `${number(count)} ${noun}${count === 1 ? '' : 's'}`;
}

/** JSON with line breaks; text that is not JSON, because it is truncated, as it is. */
export function pretty(json: string): string {
  try {
    // A number beyond 2^53 would lose digits.
    return /\d{16}/.test(json) ? json : JSON.stringify(JSON.parse(json), undefined, 2);
  } catch {
    return json;
  }
}
