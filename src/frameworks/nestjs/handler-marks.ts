import type { HandlerPolicy } from '../../relay/deliver/handlers.ts';

/** How the relay treats the handler; what is left out is as its options say. */
export interface OnOutboxEventOptions extends HandlerPolicy {
  /**
   * The handler's name, by which progress is kept: an event whose handler was renamed in between reaches it again. Default: the
   * names of class and method, `OrderMails.sendReceipt`. Give one where a bundler shortens class names.
   */
  name?: string;
}

/** What the decorator was given. One object for each use of it. */
export interface HandlerMark {
  readonly types: readonly string[];
  readonly options: OnOutboxEventOptions;
}

export type MemberName = string | symbol;

/** A use of the decorator. */
export interface Declaration {
  readonly name: MemberName;
  /** For a log line. */
  readonly shown: string;
  /** Whether only the method itself has the mark. */
  readonly isOnlyOnMethod: boolean;
}

/** All uses of the decorator in this process. */
export const declaredHandlers = new Map<HandlerMark, Declaration>();

// The same in every copy of the package, and need no reflect-metadata.
const ofMethod = Symbol.for('postcommit.nestjs.handlers');
const byName = Symbol.for('postcommit.nestjs.handlers-by-name');

type Method = { [ofMethod]?: readonly HandlerMark[] };
type Owner = { [byName]?: MarksByName };

interface MarksByName {
  /** A mixin may copy them to another class, which does not own them. */
  readonly owner: object;
  readonly marks: Map<MemberName, readonly HandlerMark[]>;
}

/** The marks of standard decorators, by the object whose constructor ran. */
const constructed = new WeakMap<object, Set<HandlerMark>>();

/** A copy of the method has the mark too, e.g. that of a mixin. What another decorator puts in its place has not. */
export function markMethod(method: object, mark: HandlerMark): void {
  const marked: Method = method;
  marked[ofMethod] = [...(marked[ofMethod] ?? []), mark];
}

/** Whatever the member of this name is later. `owner`: a prototype, or the metadata of a class. */
export function markByName(owner: Owner, name: MemberName, mark: HandlerMark): void {
  let own = ownMarks(owner);
  if (own === undefined) {
    own = new Map();
    // Of the owner itself: otherwise the mark of a subclass would go to its base class. Configurable, so that mixins can copy it.
    const value: MarksByName = { owner, marks: own };
    Object.defineProperty(owner, byName, { value, configurable: true, writable: true });
  }
  own.set(name, [...(own.get(name) ?? []), mark]);
}

function ownMarks(owner: Owner): MarksByName['marks'] | undefined {
  const own = Object.hasOwn(owner, byName) ? owner[byName] : undefined;
  return own?.owner === owner ? own.marks : undefined;
}

/** Called in the constructor of the class that has the method. */
export function markInstance(instance: object, mark: HandlerMark): void {
  constructed.set(instance, (constructed.get(instance) ?? new Set()).add(mark));
}

/** The marks of an object's methods, inherited ones too, by name of the method. */
export function handlerMarks(prototype: object | null): Map<MemberName, readonly HandlerMark[]> {
  const found = new Map<MemberName, HandlerMark[]>();
  const overridden = new Set<MemberName>();
  for (const { name, marks, isOwn } of markedMembers(prototype)) {
    if (overridden.has(name)) continue;
    if (isOwn) overridden.add(name); // A method that overrides a handler is one only if it is decorated itself.
    if (marks.length > 0) found.set(name, [...(found.get(name) ?? []), ...marks]);
  }
  return found;
}

/** Of an object whose constructor ran: the handlers that are not found, as another decorator has replaced their methods. */
export function replacedHandlers(instance: object): Declaration[] {
  const found = new Set(allMarks(Object.getPrototypeOf(instance)));
  const lost = [...(constructed.get(instance) ?? [])].filter((mark) => !found.has(mark));
  return lost.flatMap((mark) => declaredHandlers.get(mark) ?? []);
}

/** Those of methods that are overridden, too. */
export function* allMarks(prototype: object | null): Generator<HandlerMark> {
  for (const { marks } of markedMembers(prototype)) yield* marks;
}

/** The names of members that are no handlers. */
export function unmarkedNames(prototype: object | null): Set<MemberName> {
  return new Set([...markedMembers(prototype)].flatMap(({ name, marks }) => (marks.length > 0 ? [] : name)));
}

interface Member {
  readonly name: MemberName;
  readonly marks: readonly HandlerMark[];
  /** Whether the prototype itself has a member of this name. */
  readonly isOwn: boolean;
}

/** What an object has and inherits, without calling getters; that of subclasses first. */
function* markedMembers(prototype: object | null): Generator<Member> {
  for (let each = prototype; each !== null && each !== Object.prototype; each = Object.getPrototypeOf(each)) {
    const owners: Owner[] = [each, ...metadataOf(each)];
    const named = owners.flatMap((owner) => [...(ownMarks(owner) ?? [])]);
    for (const name of new Set([...Reflect.ownKeys(each), ...named.map(([key]) => key)])) {
      const value = ownValue(each, name);
      // A decorator may keep the method that it replaces under another name.
      const elsewhere = named.flatMap(([key, marks]) => (key === name ? [] : marks));
      const ofMember = typeof value === 'function' ? ((value as Method)[ofMethod] ?? []) : [];
      const ofValue = ofMember.filter((mark) => !elsewhere.includes(mark));
      const ofName = named.flatMap(([key, marks]) => (key === name ? marks : []));
      yield { name, marks: [...new Set([...ofName, ...ofValue])], isOwn: Object.hasOwn(each, name) };
    }
  }
}

/** What standard decorators keep of a class, where the application defines `Symbol.metadata`. */
function metadataOf(prototype: object): object[] {
  const type = ownValue(prototype, 'constructor');
  if (typeof type !== 'function') return [];
  const { metadata = Symbol.for('Symbol.metadata') } = Symbol as { metadata?: symbol };
  const found = ownValue(type, metadata);
  return typeof found === 'object' && found !== null ? [found] : [];
}

function ownValue(owner: object, name: MemberName): unknown {
  return Object.getOwnPropertyDescriptor(owner, name)?.value;
}
