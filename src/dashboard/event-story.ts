import type { EventDetails } from '../outbox/operating/find.ts';
import type { Redaction } from './redaction.ts';

/** An event with its history, as far as the redaction rules allow. */
export interface EventStory
  extends Omit<EventDetails, 'payload' | 'payloadJson' | 'headersJson' | 'payloadCut' | 'edits'> {
  payload: {
    /** JSON text, up to 65,536 characters. `null`: hidden, because it is too large to redact. */
    json: string | null;
    truncated: boolean;
    redacted: boolean;
  };
  edits: { at: Date; by: string; databaseRole: string; reason: string | null; replacedJson: string | null }[];
}

const shownCharactersMax = 65_536;
const errorCharactersMax = 20_000;

export function toStory(event: EventDetails, redaction: Redaction): EventStory {
  const {
    payload: _payload,
    payloadJson,
    headersJson: _headersJson,
    payloadCut,
    edits,
    headers,
    failures,
    ...rest
  } = event;
  // Rules need the whole payload: nothing of a truncated one is shown.
  const isUnreadable = payloadCut && redaction.hidesPayloads;
  const { json, redacted } = isUnreadable ? { json: '', redacted: true } : redaction.payload(payloadJson);
  return {
    ...rest,
    headers: redaction.headers(headers),
    failures: failures.map((failure) => ({ ...failure, error: failure.error.slice(0, errorCharactersMax) })),
    payload: {
      json: isUnreadable ? null : json.slice(0, shownCharactersMax),
      truncated: payloadCut || json.length > shownCharactersMax,
      redacted,
    },
    edits: edits.map((edit) => ({ ...edit, replacedJson: redactedText(edit.replacedJson, redaction) })),
  };
}

/** `null` if the text is truncated, so that no rule can be applied to it. */
function redactedText(json: string, redaction: Redaction): string | null {
  try {
    return redaction.payload(json).json;
  } catch {
    return null;
  }
}
