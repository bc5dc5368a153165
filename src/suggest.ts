/** The known word that is most similar to a mistyped one, if any is similar enough. */
export function suggest(word: string, known: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** ` Did you mean delayMs?`, or an empty text if no known word is similar enough. */
export function didYouMean(word: string, known: readonly string[]): string {
  const near = suggest(word.slice(0, 80), known);
  return near === undefined ? '' : ` Did you mean ${near}?`;
}

/**
 * What to say about the first option that is not known: a misspelt one would silently be ignored. `undefined`: all are known. `of` is
 * what takes the options, e.g. `createOutbox()`.
 */
export function unknownOption(given: object, known: readonly string[], of?: string): string | undefined {
  const unknown = Object.keys(given).find((name) => !known.includes(name));
  if (unknown === undefined) return undefined;
  const name = shownName(unknown);
  const start = of === undefined ? `There is no option ${name}.` : `${of} has no option ${name}.`;
  return `${start}${didYouMean(unknown, known)} Valid options: ${known.join(', ')}.`;
}

/** A name as it is, if that is short and on one line. */
function shownName(name: string): string {
  return /^[\w.$-]{1,80}$/.test(name) ? name : JSON.stringify(name.slice(0, 80));
}

/** The Levenshtein distance: insertions, deletions and replacements that turn `a` into `b`. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
