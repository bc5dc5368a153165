import type { Misfit } from './misfit.ts';

/** What a change of a schema breaks. */
export type Broken =
  /** Consumers that have the new schema cannot read events that were written with the old one. */
  | 'newConsumers'
  /** Consumers that have the old schema cannot read events that are written with the new one. */
  | 'oldConsumers';

/** One line about a change, without the path. */
export function describeMisfit(misfit: Misfit, broken: Broken): string {
  return broken === 'newConsumers' ? forNewConsumers(misfit) : forOldConsumers(misfit);
}

const before = 'events written before';
const oldConsumers = 'consumers with the old schema';

function forNewConsumers({ rule, about = [], reader, writer }: Misfit): string {
  const list = about.join(', ');
  switch (rule) {
    case 'type':
      return `type narrowed: ${list} is no longer accepted, only ${reader}, and ${before} may have it`;
    case 'value':
      return `${values(about)} ${list} removed, and ${before} may have it`;
    case 'listed':
      return `limited to ${list}, and ${before} may have other values`;
    case 'missing':
      return `new required field${renamed('from', about)}, which ${before} do not have`;
    case 'optional':
      return `optional field became required, and ${before} may lack it`;
    case 'dropped':
      return 'field added';
    case 'unexpected':
      return `field removed from an object that allows no other fields, and ${before} have it`;
    case 'others':
      return `other fields are no longer allowed, and ${before} may have them`;
    case 'limit':
      return `${list} narrowed from ${writer} to ${reader}, and ${before} may be outside`;
    case 'keyword':
      return `${list} added or changed, and ${before} may not match it`;
    case 'unknown':
      return `cannot be compared: ${list}`;
  }
}

function forOldConsumers({ rule, about = [], reader, writer }: Misfit): string {
  const list = about.join(', ');
  switch (rule) {
    case 'type':
      return `type widened: may now be ${list}, and ${oldConsumers} accept only ${reader}`;
    case 'value':
      return `${values(about)} ${list} added, which ${oldConsumers} do not accept`;
    case 'listed':
      return `no longer limited to ${list}, and ${oldConsumers} accept nothing else`;
    case 'missing':
      return `required field removed${renamed('to', about)}, and ${oldConsumers} require it`;
    case 'optional':
      return `required field became optional, and ${oldConsumers} require it`;
    case 'dropped':
      return `field removed${renamed('to', about)}: ${oldConsumers} no longer get it`;
    case 'unexpected':
      return `field added, and ${oldConsumers} allow no other fields in this object`;
    case 'others':
      return `other fields are now allowed, and ${oldConsumers} do not accept them`;
    case 'limit':
      return `${list} widened from ${reader} to ${writer}, and ${oldConsumers} still check it`;
    case 'keyword':
      return `${list} removed or changed, and ${oldConsumers} still check it`;
    case 'unknown':
      return `cannot be compared: ${list}`;
  }
}

function values(about: readonly string[]): string {
  return about.length === 1 ? 'value' : 'values';
}

function renamed(direction: 'from' | 'to', about: readonly string[]): string {
  return about.length === 0 ? '' : ` (renamed ${direction} ${about[0]}?)`;
}
