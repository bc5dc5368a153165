/** By major, minor and patch; a prerelease counts as its release. */
export function isOlder(version: string, oldest: string): boolean {
  const [a, b] = [version, oldest].map((text) => (text.match(/\d+/g) ?? []).slice(0, 3).map(Number));
  for (const place of [0, 1, 2]) {
    const difference = (a?.[place] ?? 0) - (b?.[place] ?? 0);
    if (difference !== 0) return difference < 0;
  }
  return false;
}
