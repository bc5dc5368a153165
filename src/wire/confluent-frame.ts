/*
 * The wire format of Confluent's serializers: a zero byte, the id of the schema in four bytes (big-endian), the body.
 */

const magicByte = 0;
const headerBytes = 5;

/** The body with the id of its schema in front. */
export function toFrame(schemaId: number, body: string): Uint8Array {
  const frame = Buffer.allocUnsafe(headerBytes + Buffer.byteLength(body));
  frame.writeUInt8(magicByte, 0);
  frame.writeUInt32BE(schemaId, 1);
  frame.write(body, headerBytes);
  return frame;
}

/** The body of a frame, or what was given if it is none. No JSON text begins with a zero byte, so neither is taken for the other. */
export function bodyOfFrame(body: string | Uint8Array): string | Uint8Array {
  const isFrame = typeof body !== 'string' && body.length >= headerBytes && body[0] === magicByte;
  return isFrame ? body.subarray(headerBytes) : body;
}
