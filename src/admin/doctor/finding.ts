/** From the best to the worst. */
export const severities = ['ok', 'note', 'warning', 'critical'] as const;

/**
 * `ok`: looked at, and as it should be. `note`: worth knowing. `warning`: will hurt if it stays. `critical`: it hurts
 * now, or events are in danger.
 */
export type Severity = (typeof severities)[number];

/** What a doctor's check found. */
export interface Judgement {
  severity: Severity;
  what: string;
  /** What comes of it. */
  consequence?: string;
  /** The command that fixes it: SQL, or one of `postcommit`. */
  fix?: string;
}

export const ok = (what: string): Judgement => ({ severity: 'ok', what });

const finding =
  (severity: Severity) =>
  (what: string, consequence: string, fix?: string): Judgement => ({
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

/** How bad it is to be over a limit: ten times over it is critical. */
export function severityOver(value: number, limit: number): Severity {
  return value > limit * 10 ? 'critical' : value > limit ? 'warning' : 'ok';
}
