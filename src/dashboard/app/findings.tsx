import { type DiagnosisData, get } from './api.ts';
import { useLoaded } from './load.ts';
import { Empty, Problem, Section, State } from './parts.tsx';

/** What `postcommit doctor` finds, with the fix. */
export function Findings() {
  const { data, problem, busy, reload } = useLoaded('doctor', () => get<DiagnosisData>('doctor'));
  const findings = (data.value?.findings ?? []).filter(
    ({ severity }) => severity === 'critical' || severity === 'warning',
  );
  const again = (
    <button type="button" class="small" onClick={reload} disabled={busy.value}>
      {busy.value ? 'Checking …' : 'Check again'}
    </button>
  );
  return (
    <Section title="Doctor" aside={again}>
      <Problem text={problem.value} />
      {data.value !== undefined && findings.length === 0 && <Empty>The doctor found nothing to fix.</Empty>}
      <ul class="findings">
        {findings.map(({ check, severity, what, consequence, fix }) => (
          <li key={`${check} ${what}`}>
            <p>
              <State of={severity} /> {what}
            </p>
            {consequence && <p class="dim">{consequence}</p>}
            {fix && <pre class="fix">{fix}</pre>}
          </li>
        ))}
      </ul>
    </Section>
  );
}
