import { isRefusedValue } from './database-error.ts';

/** Whether PostgreSQL can store the text, apart from limits of the database's encoding. */
export function isStorable(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed();
}

/**
 * The text with everything beyond ASCII written as `\uXXXX`. Every server encoding of PostgreSQL contains ASCII, so every
 * database can store it.
 */
export function toAscii(text: string): string {
  return text.replace(/[\0\u0080-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Writes a text for people. Falls back to ASCII if the database cannot store it as it is. */
export async function storeText<T>(text: string, write: (text: string) => Promise<T>): Promise<T> {
  try {
    return await write(text);
  } catch (error) {
    const ascii = toAscii(text);
    if (!isRefusedValue(error) || ascii === text) throw error;
    return await write(ascii);
  }
}
