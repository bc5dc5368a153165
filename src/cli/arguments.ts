import { InvalidArgumentError } from 'commander';
import { isQueueName } from '../queue-name.ts';

const unitMs: Record<string, number> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};

/** Parses `90s`, `2h` or `1h30m` into milliseconds. Returns `undefined` for anything else, including a number without a unit. */
export function parseDuration(text: string): number | undefined {
  if (!/^(\d+(\.\d+)?(ms|min|[smhdw]))+$/.test(text)) return undefined;
  let ms = 0;
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|min|[smhdw])/g)) {
    ms += Number(amount) * (unitMs[unit ?? ''] ?? Number.NaN);
  }
  return ms;
}

export function durationArgument(text: string): number {
  const ms = parseDuration(text);
  if (ms === undefined)
    throw new InvalidArgumentError('It must be a duration with a unit, such as 30d, 12h, 90m or 5s.');
  return Math.round(ms);
}

const isoTime = /^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$/;

/** Parses a point in time: a duration ago, or an ISO date, in local time unless it has a zone. */
export function parseTime(text: string, now: Date): Date | undefined {
  const agoMs = parseDuration(text);
  // A date without a time is local midnight. JavaScript alone would read it as UTC.
  const iso = text.length === 10 ? `${text}T00:00:00` : text;
  const time = agoMs !== undefined ? new Date(now.getTime() - agoMs) : isDate(text) ? new Date(iso) : undefined;
  return time === undefined || Number.isNaN(time.getTime()) ? undefined : time;
}

/** Whether the text is an ISO time on a day that exists: JavaScript reads 31 February as 3 March. */
function isDate(text: string): boolean {
  const day = text.slice(0, 10);
  const midnight = new Date(`${day}T00:00:00Z`);
  return isoTime.test(text) && !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(day);
}

export function timeArgument(text: string): Date {
  const time = parseTime(text, new Date());
  if (time === undefined) {
    throw new InvalidArgumentError(
      'It must be a time: 2h, 30m or 7d ago, or an ISO date such as 2026-01-31T12:00:00Z.',
    );
  }
  return time;
}

/** Parses a whole number within limits. Rejects `1e3`, `0x10` and an empty text. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max))
      throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
    return value;
  };
}

const slotsArgument = wholeNumber(1, 10_000);

/** Collects `reports=2` into `{ reports: 2 }`, over all times that the flag is given. */
export function queueArgument(text: string, before: Record<string, number> = {}): Record<string, number> {
  const [name = '', slots = ''] = text.split(/=(.*)/s);
  if (!isQueueName(name) || slots === '') {
    throw new InvalidArgumentError('It must be the name of a queue and a limit, such as reports=2.');
  }
  if (Object.hasOwn(before, name)) throw new InvalidArgumentError(`The queue ${name} is given twice.`);
  return { ...before, [name]: slotsArgument(slots) };
}

/** `order` is every aggregate of that type, `order:42` is one. */
export function aggregateArgument(text: string): [type: string, id?: string] {
  const colon = text.indexOf(':');
  const type = colon < 0 ? text : text.slice(0, colon);
  const id = text.slice(colon + 1);
  if (type === '' || (colon >= 0 && id === '')) {
    throw new InvalidArgumentError('It must be type:id, such as order:42, or a type alone.');
  }
  return colon < 0 ? [type] : [type, id];
}
