import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import { PostcommitError } from '../errors.ts';
import { FailureLimiter } from './failure-limiter.ts';

/** `operator`: everything. `reader`: sees everything that is not redacted, and changes nothing. */
export type DashboardRole = 'operator' | 'reader';

/** Who sends a request. */
export interface DashboardUser {
  role: DashboardRole;
  /** The name in the audit table. */
  by: string;
}

export interface AuthenticationOptions {
  /** The name in the audit table of everyone who uses an open dashboard. Default `dashboard`. */
  by?: string;
  /** Lets operators in. At least 16 characters: `openssl rand -hex 24` writes one. */
  token?: string;
  /** Lets readers in, who can change nothing. At least 16 characters, and not the other one. */
  readOnlyToken?: string;
  /**
   * Your own authentication, instead of tokens: returns who sends the request, or `undefined` for 401. The request has all
   * headers, cookies too.
   */
  authenticate?: (request: Request) => DashboardUser | undefined | Promise<DashboardUser | undefined>;
}

/** `locked`: too many wrong tokens from this address, the token was not compared. */
export type Authenticated = { user: DashboardUser } | { refused: 'missing' | 'wrong' | 'locked' };

const tokenCharsMin = 16;
const sessionMs = 12 * 3_600_000;
const cookieName = 'postcommit_dashboard';

/**
 * Checks tokens and sessions. A browser signs in with a token once and gets a cookie: the role, its end, and an HMAC of both
 * with a key that is derived from the token. So nothing is stored, several processes accept the same session, and a changed
 * token ends all sessions.
 */
export class Authentication {
  readonly #options: AuthenticationOptions;
  readonly #digests: readonly { role: DashboardRole; digest: Buffer; key: Buffer }[];
  readonly #failures = new FailureLimiter();

  constructor(options: AuthenticationOptions) {
    this.#options = options;
    const { token, readOnlyToken, authenticate } = options;
    for (const [name, value] of Object.entries({ token, readOnlyToken })) {
      if (value === undefined) continue;
      if (typeof value !== 'string' || value.length < tokenCharsMin) {
        throw bad(`${name} must have at least ${tokenCharsMin} characters.`);
      }
    }
    if (token !== undefined && token === readOnlyToken) throw bad('token and readOnlyToken must differ.');
    if (authenticate !== undefined && (token ?? readOnlyToken) !== undefined) {
      throw bad('Pass tokens or authenticate, not both.');
    }
    const tokens: [DashboardRole, string | undefined][] = [
      ['operator', token],
      ['reader', readOnlyToken],
    ];
    this.#digests = tokens.flatMap(([role, value]) =>
      value === undefined ? [] : [{ role, digest: sha256(value), key: sha256(`postcommit session ${value}`) }],
    );
  }

  /** Whether requests need a token or pass a hook. */
  get isRequired(): boolean {
    return this.usesTokens || this.#options.authenticate !== undefined;
  }

  get usesTokens(): boolean {
    return this.#digests.length > 0;
  }

  async check(request: Request, address: string | undefined): Promise<Authenticated> {
    const { authenticate } = this.#options;
    if (authenticate !== undefined) {
      const user = await authenticate(request);
      return user === undefined ? { refused: 'missing' } : { user };
    }
    if (!this.usesTokens) return { user: { role: 'operator', by: this.#options.by ?? 'dashboard' } };
    // A session is valid even while its address is locked: an attacker behind the same proxy must not lock operators out.
    const cookie = cookieOf(request);
    const role = cookie === undefined ? undefined : this.#roleOfSession(cookie);
    if (role !== undefined) return { user: userOf(role) };
    const bearer = /^Bearer (.+)$/i.exec(request.headers.get('authorization') ?? '')?.[1];
    return bearer === undefined ? { refused: 'missing' } : this.checkToken(bearer, address);
  }

  /** Compares a token in constant time. After too many wrong ones in a minute it compares none of that address. */
  checkToken(token: string, address: string | undefined): Authenticated {
    if (this.#failures.isLocked(address)) return { refused: 'locked' };
    const digest = sha256(token);
    // All are compared, so that the time does not tell which one matched.
    const matching = this.#digests.filter((each) => timingSafeEqual(each.digest, digest));
    const [found] = matching;
    if (found) return { user: userOf(found.role) };
    this.#failures.note(address);
    return { refused: 'wrong' };
  }

  /** The value of a Set-Cookie header that starts a session. */
  sessionCookie(role: DashboardRole, { path, secure }: { path: string; secure: boolean }): string {
    const until = Date.now() + sessionMs;
    const key = this.#digests.find((each) => each.role === role)?.key ?? Buffer.alloc(0);
    const value = `${role}.${until}.${sign(key, role, until)}`;
    return `${cookieName}=${value}; ${attributes(path, secure)}; Max-Age=${sessionMs / 1_000}`;
  }

  endSessionCookie({ path, secure }: { path: string; secure: boolean }): string {
    return `${cookieName}=; ${attributes(path, secure)}; Max-Age=0`;
  }

  #roleOfSession(value: string): DashboardRole | undefined {
    const [role, until = '', signature = ''] = value.split('.');
    const known = this.#digests.find((each) => each.role === role);
    if (known === undefined || !/^\d{1,15}$/.test(until) || Number(until) < Date.now()) return undefined;
    const expected = Buffer.from(sign(known.key, known.role, Number(until)));
    const given = Buffer.from(signature);
    return given.length === expected.length && timingSafeEqual(given, expected) ? known.role : undefined;
  }
}

function userOf(role: DashboardRole): DashboardUser {
  return { role, by: `dashboard ${role}` };
}

function sign(key: Buffer, role: DashboardRole, until: number): string {
  return createHmac('sha256', key).update(`${role}.${until}`).digest('base64url');
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

function attributes(path: string, secure: boolean): string {
  return `Path=${path}; HttpOnly; SameSite=Strict${secure ? '; Secure' : ''}`;
}

function cookieOf(request: Request): string | undefined {
  const cookies = (request.headers.get('cookie') ?? '').split(';').map((cookie) => cookie.trim());
  return cookies.find((cookie) => cookie.startsWith(`${cookieName}=`))?.slice(cookieName.length + 1);
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
