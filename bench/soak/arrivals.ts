/** What one target received, checked as it arrives: per aggregate in order, and nothing left out. */
export class Arrivals {
  readonly #last = new Map<string, number>();
  readonly violations: string[] = [];
  count = 0;
  /** Delivery is at least once, so these are counted and are no failure. */
  duplicates = 0;

  note(aggregateId: string, n: number, isIntact: boolean): void {
    const last = this.#last.get(aggregateId) ?? 0;
    if (!isIntact) this.#violation(`${aggregateId}/${n} arrived damaged`);
    if (n <= last) {
      this.duplicates++;
      return;
    }
    if (n !== last + 1) this.#violation(`${aggregateId}/${n} arrived after ${aggregateId}/${last}`);
    this.#last.set(aggregateId, n);
    this.count++;
  }

  /** Adds a violation for every aggregate of which events are missing. */
  compare(emitted: ReadonlyMap<string, number>): void {
    for (const [aggregateId, n] of emitted) {
      const last = this.#last.get(aggregateId) ?? 0;
      if (last !== n) this.#violation(`${aggregateId}: ${last} of ${n} events arrived`);
    }
  }

  #violation(text: string): void {
    if (this.violations.length < 20) this.violations.push(text);
  }
}
