/** Also in migrations/routines/check_event.sql. A name costs a relay ten times its text, and HTTP servers refuse more than about 100. */
export const headersMax = 128;
/** Of all headers as jsonb text. Also in migrations/routines/check_event.sql. */
export const headersTextBytesMax = 65_536;

/** What a header adds to the jsonb text of all: with the colon, the comma or a brace, and their spaces. */
export function headerTextBytes(name: string, value: string): number {
  return Buffer.byteLength(JSON.stringify(name)) + Buffer.byteLength(JSON.stringify(value)) + 4;
}
