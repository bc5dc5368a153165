/** From best to worst. */
export const severities = ['ok', 'note', 'warning', 'critical'] as const;

/**
 * `ok`: checked, no problem. `note`: good to know. `warning`: causes problems if it stays. `critical`: causes problems now,
 * or events may be lost.
 */
export type Severity = (typeof severities)[number];

/** What a check found. */
export interface CheckFinding {
  severity: Severity;
  /** What is wrong. */
  what: string;
  /** Why it matters. */
  consequence?: string;
  /** What fixes it: SQL, a command to copy (`npx postcommit ...`), or one sentence. */
  fix?: string;
}

export const ok = (what: string): CheckFinding => ({ severity: 'ok', what });

const finding =
  (severity: Severity) =>
  (what: string, consequence: string, fix?: string): CheckFinding => ({
    severity,
    what,
    consequence,
    ...(fix === undefined ? {} : { fix }),
  });

export const note = finding('note');
export const warning = finding('warning');
export const critical = finding('critical');

export function worstOf(findings: readonly { severity: Severity }[]): Severity {
  return severities[Math.max(0, ...findings.map(({ severity }) => severities.indexOf(severity)))] ?? 'ok';
}

/** A value over a limit is a warning, over ten times the limit it is critical. */
export function severityOver(value: number, limit: number): Severity {
  return value > limit * 10 ? 'critical' : value > limit ? 'warning' : 'ok';
}
