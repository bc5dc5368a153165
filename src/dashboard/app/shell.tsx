import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { loadMe, me, signIn, signOut } from './api.ts';
import { AuditPage } from './audit.tsx';
import { DeadLettersPage } from './dead-letters.tsx';
import { EventPage } from './event.tsx';
import { AggregatePage, EventsPage, searchWanted } from './events.tsx';
import { messageOf } from './failure.ts';
import { shortNumber } from './format.ts';
import { follow, overview, trouble } from './live.ts';
import { OperatePage } from './operate.tsx';
import { OverviewPage } from './overview.tsx';
import { Dialog, Empty, Problem } from './parts.tsx';
import { chooseOutbox, go, href, route } from './route.ts';
import { theme, toggleTheme } from './theme.ts';

const pages: [page: string, name: string][] = [
  ['overview', 'Overview'],
  ['events', 'Events'],
  ['dead-letters', 'Dead letters'],
  ['operate', 'Operate'],
  ['audit', 'Audit'],
];

const retryMs = 2_000;

export function App() {
  const problem = useSignal<string | undefined>(undefined);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = () => {
      loadMe().then(
        () => {
          problem.value = undefined;
        },
        (error) => {
          problem.value = messageOf(error);
          timer = setTimeout(load, retryMs);
        },
      );
    };
    load();
    return () => clearTimeout(timer);
  }, [problem]);
  if (me.value === undefined) return <Problem text={problem.value} />;
  return me.value === null ? <SignIn /> : <Dashboard outboxes={me.value.outboxes} />;
}

function SignIn() {
  const problem = useSignal<string | undefined>(undefined);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const token = String(new FormData(event.currentTarget as HTMLFormElement).get('token') ?? '');
    signIn(token).catch((error) => {
      problem.value = messageOf(error);
    });
  };
  return (
    <main class="sign-in" tabIndex={-1}>
      <h1>Postcommit</h1>
      <form onSubmit={submit}>
        <label>
          Token
          <input name="token" type="password" autoComplete="current-password" required />
        </label>
        <Problem text={problem.value} />
        <button type="submit" class="primary">
          Sign in
        </button>
      </form>
    </main>
  );
}

function Dashboard({ outboxes }: { outboxes: string[] }) {
  const help = useSignal(false);
  const { outbox, page } = route.value;
  const known = outboxes.includes(outbox);
  useEffect(() => {
    if (!known && outboxes[0] !== undefined) chooseOutbox(outboxes[0]);
  }, [known, outboxes]);
  useEffect(() => (known ? follow(outbox) : undefined), [outbox, known]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (press(event)) event.preventDefault();
      if (event.key === '?' && !isTyping(event)) help.value = true;
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [help]);
  const name = pages.find(([each]) => each === page)?.[1] ?? (page === 'event' ? 'Event' : 'Aggregate');
  const level = overview.value?.health.level;
  useEffect(() => {
    document.title = `${level === undefined || level === 'good' ? '' : '● '}${name} · ${outbox} · Postcommit`;
  }, [name, outbox, level]);
  return (
    <>
      <button type="button" class="skip" onClick={skip}>
        Skip to the content
      </button>
      <Header
        outboxes={outboxes}
        onHelp={() => {
          help.value = true;
        }}
      />
      {trouble.value !== undefined && (
        <p class="trouble" role="alert">
          {trouble.value} {overview.value && 'The figures are from before.'}
        </p>
      )}
      <main id="main" tabIndex={-1}>
        {known && <Page key={`${outbox} ${page}`} page={page} />}
      </main>
      {help.value && (
        <Help
          onClose={() => {
            help.value = false;
          }}
        />
      )}
    </>
  );
}

function skip(): void {
  document.querySelector<HTMLElement>('main')?.focus();
}

function Page({ page }: { page: string }) {
  switch (page) {
    case 'overview':
      return <OverviewPage />;
    case 'events':
      return <EventsPage />;
    case 'event':
      return <EventPage />;
    case 'aggregate':
      return <AggregatePage />;
    case 'dead-letters':
      return <DeadLettersPage />;
    case 'operate':
      return <OperatePage />;
    case 'audit':
      return <AuditPage />;
    default:
      return <Empty>There is no such page.</Empty>;
  }
}

function Header({ outboxes, onHelp }: { outboxes: string[]; onHelp: () => void }) {
  const { outbox, page } = route.value;
  const current = page === 'event' || page === 'aggregate' ? 'events' : page;
  const dead = overview.value?.counts.failed ?? 0;
  // On a phone the pages do not fit beside each other.
  useEffect(() => {
    document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }, [current]);
  return (
    <header class="bar">
      <a class="brand" href={href('overview')}>
        <span class={`dot ${trouble.value ? 'bad' : (overview.value?.health.level ?? 'quiet')}`} aria-hidden="true" />
        Postcommit
      </a>
      {outboxes.length > 1 && (
        <select aria-label="Outbox" value={outbox} onChange={(event) => chooseOutbox(event.currentTarget.value)}>
          {outboxes.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      )}
      <nav aria-label="Pages">
        {pages.map(([each, name]) => (
          <a key={each} href={href(each)} aria-current={each === current ? 'page' : undefined}>
            {name}
            {each === 'dead-letters' && dead > 0 && <span class="badge">{shortNumber(dead)}</span>}
          </a>
        ))}
      </nav>
      <span class="tools">
        {me.value?.role === 'reader' && <span class="tag">read only</span>}
        <button
          type="button"
          class="plain"
          onClick={toggleTheme}
          aria-label={`Use ${theme.value === 'dark' ? 'light' : 'dark'} colours`}
        >
          {theme.value === 'dark' ? '☀' : '☾'}
        </button>
        <button type="button" class="plain" onClick={onHelp} aria-label="Keyboard shortcuts">
          ?
        </button>
        {me.value?.signedIn && (
          <button type="button" class="small" onClick={() => void signOut().catch(() => {})}>
            Sign out
          </button>
        )}
      </span>
    </header>
  );
}

function Help({ onClose }: { onClose: () => void }) {
  const keys: [key: string, what: string][] = [
    ...pages.map(([, name], index): [string, string] => [String(index + 1), name]),
    ['/', 'Search an event'],
    ['t', 'Light or dark'],
    ['?', 'This list'],
    ['Esc', 'Close a dialog'],
  ];
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl class="keys">
        {keys.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

function isTyping({ target }: Event): boolean {
  return target instanceof HTMLElement && target.matches('input, textarea, select, dialog, dialog *');
}

/** Handles a shortcut. Returns whether there was one. */
function press(event: KeyboardEvent): boolean {
  if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return false;
  const page = pages[Number(event.key) - 1]?.[0];
  if (page !== undefined) go(page);
  else if (event.key === 't') toggleTheme();
  else if (event.key === '/') {
    searchWanted.value = true;
    go('events');
  } else return false;
  return true;
}
