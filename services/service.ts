export type ServiceName = 'kafka' | 'rabbitmq' | 'nats' | 'redis' | 'sqs' | 'schema-registry';

/** The number of a port by its name, `client` being the one that clients connect to. */
export type PortNumber = (name: string) => number;

export interface Service {
  readonly name: ServiceName;
  /** As people write it. */
  readonly title: string;
  /** The environment variable that points at a server. Where it is set, that server is used and none is started. */
  readonly variable: string;
  /** The ports it listens on, by name, with their usual numbers. */
  readonly ports: Readonly<Record<string, number>>;
  /** Fetches what this machine lacks. Rejects with NotAvailable where it cannot be had. */
  install(report: Report): Promise<Installed>;
  environment(port: PortNumber): Record<string, string>;
  /**
   * One conversation in the server's own protocol. Resolves with its version (where the protocol tells) once clients
   * can work with it, and rejects until then.
   */
  check(environment: Readonly<Record<string, string>>): Promise<string | undefined>;
}

export interface Installed {
  /** Writes its configuration into the folder and says how it is started there. */
  prepare(place: Place): Promise<Command>;
  readonly version?: string;
}

/** What one running server has to itself. */
export interface Place {
  readonly folder: string;
  readonly port: PortNumber;
  /** Added to the server's configuration file, in its own words; later ones win. */
  readonly settings: Readonly<Record<string, string>>;
}

export interface Command {
  program: string;
  args: string[];
  /** On top of PATH, HOME, LANG and TMPDIR: servers get nothing else, so that one runs like the other. */
  env?: Record<string, string>;
}

/** Progress, a line at a time. */
export type Report = (line: string) => void;

/** This machine cannot have the service: no such program, no way to fetch it. The message says what to do. */
export class NotAvailable extends Error {
  override readonly name = 'NotAvailable';
}

/** The server was started and did not work. The message ends with its log. */
export class StartFailed extends Error {
  override readonly name = 'StartFailed';
}
