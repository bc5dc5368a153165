import type { ConnectionOptions } from '../../database/connection-options.ts';
import { codedDatabaseError } from '../../database/database-error.ts';
import type { Executor } from '../../database/executor.ts';
import { PostcommitError } from '../../errors.ts';
import { quantity } from '../../format.ts';
import { examineMigrations } from '../../outbox/examining/examine-migrations.ts';
import { suggest } from '../../suggest.ts';
import type { CheckName, Patient } from './checks.ts';
import { checkNames, checks, withoutTables } from './checks.ts';
import type { Judgement, Severity } from './finding.ts';
import { note, severities, worstOf } from './finding.ts';
import type { DoctorLimits } from './limits.ts';
import { resolveLimits } from './limits.ts';

/** With `connectionString` or `connection`, two more connections are opened to find out whether a pooler is in between. */
export interface DoctorOptions extends ConnectionOptions {
  /** Only these checks. Default: all. */
  only?: readonly CheckName[];
  /** From where on to warn; ten times of a limit is critical. */
  limits?: Partial<DoctorLimits>;
}

/** What a check found, with its consequence and the command that fixes it. */
export interface Finding extends Judgement {
  check: CheckName;
}

export interface Diagnosis {
  /** The worst severity of all findings. */
  worst: Severity;
  /** Worst first. */
  findings: Finding[];
}

/** Of one check. A thousand sessions that hold a snapshot are no better to know than the oldest few. */
const findingsMax = 5;

/** Checks outbox and server and answers everything that was found, worst first. Changes nothing. */
export async function examine(db: Executor, schema: string, options: DoctorOptions = {}): Promise<Diagnosis> {
  const wanted = options.only === undefined ? checkNames : checkOnly(options.only);
  const { connectionString, connection } = options;
  const patient: Patient = {
    db,
    schema,
    limits: resolveLimits(options.limits),
    ...((connectionString ?? connection) && { connectTo: { connectionString, connection } }),
  };
  const findings: Finding[] = [];
  const hasOutbox = await isThere(patient);
  for (const check of wanted) {
    if (!hasOutbox && !withoutTables.includes(check)) continue;
    findings.push(...(await run(check, patient)).map((judgement) => ({ check, ...judgement })));
  }
  const rank = ({ severity }: Finding) => severities.indexOf(severity);
  return { worst: worstOf(findings), findings: findings.sort((a, b) => rank(b) - rank(a)) };
}

/** What this role may not look at counts as there: each check then says so. */
async function isThere({ db, schema }: Patient): Promise<boolean> {
  try {
    return (await examineMigrations(db, schema)).length > 0;
  } catch (error) {
    if (isRefused(error)) return true;
    // A table of that name, but not ours.
    if (codeOf(codedDatabaseError(error)) === 'POSTCOMMIT_E_MIGRATION_MISSING') return false;
    throw error;
  }
}

async function run(check: CheckName, patient: Patient): Promise<Judgement[]> {
  try {
    return bounded(await checks[check](patient), check);
  } catch (error) {
    const coded = codedDatabaseError(error);
    if (isLost(coded)) throw coded;
    const message = error instanceof Error ? error.message : String(error);
    const { why, fix } = whyUnchecked(coded);
    return [note(`not checked, ${why}: ${message.slice(0, 200)}`, 'Whether all is well here is not known.', fix)];
  }
}

function bounded(judgements: Judgement[], check: CheckName): Judgement[] {
  const rank = ({ severity }: Judgement) => severities.indexOf(severity);
  const sorted = judgements.sort((a, b) => rank(b) - rank(a));
  const more = sorted.slice(findingsMax);
  if (more.length === 0) return sorted;
  const what = `and ${quantity(more.length, 'finding')} more of this check`;
  const fix = `fix these first, then: postcommit doctor --only ${check}`;
  return [...sorted.slice(0, findingsMax), { severity: worstOf(more), what, fix }];
}

function whyUnchecked(error: unknown): { why: string; fix?: string } {
  switch (codeOf(error)) {
    case 'POSTCOMMIT_E_PERMISSION_DENIED':
      return { why: 'this role may not look at it', fix: 'postcommit grants --reader <this role>' };
    case 'POSTCOMMIT_E_ROW_SECURITY':
      return { why: 'rows may be hidden from this role', fix: 'postcommit doctor --only row-security' };
    default:
      return { why: 'it failed' };
  }
}

function isRefused(error: unknown): boolean {
  const code = codeOf(codedDatabaseError(error));
  return code === 'POSTCOMMIT_E_PERMISSION_DENIED' || code === 'POSTCOMMIT_E_ROW_SECURITY';
}

function isLost(error: unknown): boolean {
  const code = codeOf(error);
  return code === 'POSTCOMMIT_E_DATABASE_UNREACHABLE' || code === 'POSTCOMMIT_E_DATABASE_REFUSED';
}

function codeOf(error: unknown): string | undefined {
  return error instanceof PostcommitError ? error.code : undefined;
}

function checkOnly(only: readonly string[]): CheckName[] {
  for (const name of only) {
    if ((checkNames as string[]).includes(name)) continue;
    const meant = suggest(name, checkNames);
    const hint = meant ? `Did you mean ${meant}?` : `There are ${checkNames.join(', ')}.`;
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `There is no check ${JSON.stringify(name)}. ${hint}`);
  }
  return checkNames.filter((name) => only.includes(name));
}
