/** A setting of this process. */
export function setting(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`Set ${name}; README.md says what it is.`);
  return value;
}
