import type { ConnectionOptions } from '../../database/connection-options.ts';
import { codedDatabaseError } from '../../database/database-error.ts';
import type { Executor } from '../../database/executor.ts';
import { isOfInbox } from '../../database/migrations.ts';
import { PostcommitError } from '../../errors.ts';
import { quantity } from '../../format.ts';
import { examineMigrations } from '../../outbox/examining/examine-migrations.ts';
import { suggest } from '../../suggest.ts';
import { checkOptionNames } from '../option-names.ts';
import type { CheckInput, CheckName } from './checks.ts';
import { checkNames, checks, usualChecks, withInboxOnly, withoutTables } from './checks.ts';
import type { CheckFinding, Severity } from './finding.ts';
import { note, severities, worstOf } from './finding.ts';
import type { DoctorLimits } from './limits.ts';
import { resolveLimits } from './limits.ts';

/** With `connectionString` or `connection`, two more connections are opened to find out whether a pooler is in between. */
export interface DoctorOptions extends ConnectionOptions {
  /** Only these checks. Default: all but `production`. */
  only?: readonly CheckName[];
  /** Also the production-checklist points visible from the database: relays on two hosts, metrics, retention, roles. Default `false`. */
  production?: boolean;
  /** Values over a limit are warnings, over ten times the limit they are critical. */
  limits?: Partial<DoctorLimits>;
}

/** A finding and the check that it comes from. */
export interface Finding extends CheckFinding {
  check: CheckName;
}

export interface Diagnosis {
  /** The worst severity of all findings. */
  worst: Severity;
  /** Worst first. */
  findings: Finding[];
}

/** Findings per check. The oldest few of a thousand sessions that hold a snapshot are enough. */
const findingsMax = 5;

/** Runs the checks and returns their findings, worst first. Changes nothing. */
export async function examine(db: Executor, schema: string, options: DoctorOptions = {}): Promise<Diagnosis> {
  checkOptionNames(options, 'doctor', ['connectionString', 'connection', 'only', 'production', 'limits']);
  const wanted = checksOf(options);
  const { connectionString, connection } = options;
  const input: CheckInput = {
    db,
    schema,
    limits: resolveLimits(options.limits),
    ...((connectionString ?? connection) && { connectTo: { connectionString, connection } }),
  };
  const findings: Finding[] = [];
  const possible = await possibleChecks(input);
  for (const check of wanted) {
    if (!possible.includes(check)) continue;
    findings.push(...(await run(check, input)).map((finding) => ({ check, ...finding })));
  }
  const rank = ({ severity }: Finding) => severities.indexOf(severity);
  return { worst: worstOf(findings), findings: findings.sort((a, b) => rank(b) - rank(a)) };
}

/** Tables that this role may not read count as present: each check then reports that. */
async function possibleChecks({ db, schema }: CheckInput): Promise<readonly CheckName[]> {
  try {
    const applied = await examineMigrations(db, schema);
    if (applied.length === 0) return withoutTables;
    return applied.every(isOfInbox) ? withInboxOnly : checkNames;
  } catch (error) {
    if (isRefused(error)) return checkNames;
    // A table with that name, but not Postcommit's.
    if (codeOf(codedDatabaseError(error)) === 'POSTCOMMIT_E_MIGRATION_MISSING') return withoutTables;
    throw error;
  }
}

async function run(check: CheckName, input: CheckInput): Promise<CheckFinding[]> {
  try {
    return bounded(await checks[check](input), check);
  } catch (error) {
    const coded = codedDatabaseError(error);
    if (isLost(coded)) throw coded;
    const message = error instanceof Error ? error.message : String(error);
    const { why, fix } = whyUnchecked(coded);
    return [note(`not checked, ${why}: ${message.slice(0, 200)}`, 'Problems here would not be found.', fix)];
  }
}

function bounded(findings: CheckFinding[], check: CheckName): CheckFinding[] {
  const rank = ({ severity }: CheckFinding) => severities.indexOf(severity);
  const sorted = findings.sort((a, b) => rank(b) - rank(a));
  const more = sorted.slice(findingsMax);
  if (more.length === 0) return sorted;
  const what = `${quantity(more.length, 'more finding')} of this check`;
  const fix = `fix the findings above, then run: npx postcommit doctor --only ${check}`;
  return [...sorted.slice(0, findingsMax), { severity: worstOf(more), what, fix }];
}

function whyUnchecked(error: unknown): { why: string; fix?: string } {
  switch (codeOf(error)) {
    case 'POSTCOMMIT_E_PERMISSION_DENIED':
      return { why: 'this role lacks a privilege', fix: 'npx postcommit grants --reader <this role>' };
    case 'POSTCOMMIT_E_ROW_SECURITY':
      return { why: 'rows may be hidden from this role', fix: 'npx postcommit doctor --only row-security' };
    default:
      return { why: 'the check failed' };
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

function checksOf({ only, production = false }: DoctorOptions): readonly CheckName[] {
  const chosen = only === undefined ? usualChecks : checkOnly(only);
  return production && !chosen.includes('production') ? [...chosen, 'production'] : chosen;
}

function checkOnly(only: readonly string[]): CheckName[] {
  for (const name of only) {
    if ((checkNames as string[]).includes(name)) continue;
    const meant = suggest(name, checkNames);
    const hint = meant ? `Did you mean ${meant}?` : `Valid checks: ${checkNames.join(', ')}.`;
    throw new PostcommitError('POSTCOMMIT_E_BAD_OPTION', `There is no check ${JSON.stringify(name)}. ${hint}`);
  }
  return checkNames.filter((name) => only.includes(name));
}
