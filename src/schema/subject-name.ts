/**
 * The pattern of the subject under which a registry has the schema of an event type. The same in `confluentJson()` and in
 * `schema check --registry`, so that a schema that one registers is found by the other. As Confluent's RecordNameStrategy.
 */
export const subjectPatternDefault = '{type}';

/** Whether a pattern has only the placeholders that are given. */
export function isSubjectPattern(pattern: string, placeholders: readonly string[]): boolean {
  const found = pattern.match(/\{[^}]*\}?/g) ?? [];
  return pattern !== '' && found.every((each) => placeholders.includes(each));
}

export function subjectName(pattern: string, { type, topic = '' }: { type: string; topic?: string }): string {
  return pattern.replace(/\{type\}|\{topic\}/g, (found) => (found === '{type}' ? type : topic));
}
