// To be imported before anything else by a child process: its clock is off by as much as CLOCK_SKEW_MS says.
const skewMs = Number(process.env.CLOCK_SKEW_MS ?? 0);
const TrueDate = Date;

if (skewMs !== 0) {
  globalThis.Date = class extends TrueDate {
    constructor(...given: [] | [number]) {
      super(...((given.length === 0 ? [TrueDate.now() + skewMs] : given) as [number]));
    }
    static override now(): number {
      return TrueDate.now() + skewMs;
    }
  } as DateConstructor;
}

export const trueNow = (): number => TrueDate.now();
