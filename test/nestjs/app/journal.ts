/** What happened, in order. Written to standard output for the test: one JSON object a line. */
export class Journal {
  readonly entries: Record<string, unknown>[] = [];
  private waiting: (() => void)[] = [];

  add(entry: Record<string, unknown>): void {
    this.entries.push(entry);
    console.log(JSON.stringify(entry));
    for (const check of this.waiting) check();
  }

  /** Resolves once `count` entries fit. */
  until(what: string, count = 1): Promise<void> {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`waited in vain for ${count} of ${what}`)), 20_000);
      const check = () => {
        if (this.entries.filter((entry) => entry.what === what).length < count) return;
        clearTimeout(late);
        resolve();
      };
      this.waiting.push(check);
      check();
    });
  }
}
