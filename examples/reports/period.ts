/** What a report is about: from the first to the last day, both included, as `YYYY-MM-DD`. */
export interface Period {
  from: string;
  to: string;
}

/** What the caller sent is wrong. The message is for the caller. */
export class BadPeriod extends Error {}

const dayMs = 86_400_000;
const daysMax = 366;

/** Checks what the caller sent. */
export function toPeriod(given: unknown): Period {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw new BadPeriod('The body must be an object, e.g. {"from": "2026-01-01", "to": "2026-01-31"}.');
  }
  const { from, to } = given as Partial<Record<keyof Period, unknown>>;
  const period = { from: toDay('from', from), to: toDay('to', to) };
  if (period.from > period.to) {
    throw new BadPeriod(`from (${period.from}) must not be after to (${period.to}).`);
  }
  const days = daysOf(period).length;
  if (days > daysMax) throw new BadPeriod(`A report has at most ${daysMax} days. This period has ${days}.`);
  return period;
}

export function daysOf({ from, to }: Period): string[] {
  const first = Date.parse(from);
  const count = (Date.parse(to) - first) / dayMs + 1;
  return Array.from({ length: count }, (_, index) => toText(first + index * dayMs));
}

function toDay(name: string, value: unknown): string {
  // 2026-02-30 is a valid date for Date.parse, and comes out as another day.
  if (typeof value === 'string' && /^\d{4}-\d\d-\d\d$/.test(value)) {
    const time = Date.parse(value);
    if (!Number.isNaN(time) && toText(time) === value) return value;
  }
  throw new BadPeriod(`${name} must be a day, e.g. "2026-01-31". Got ${JSON.stringify(value)?.slice(0, 40)}.`);
}

function toText(time: number): string {
  return new Date(time).toISOString().slice(0, 10);
}
