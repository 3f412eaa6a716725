/** Many calls a second that go on in the background while something else happens, and how many had no answer. */
import { eventually } from '../../support/eventually.ts'
import { type Site, inRequestPod } from './callers.ts'
import { execInPod } from './node.ts'

export interface RapidReport {
  readonly calls: number
  readonly unanswered: number
  /** Longest time between the sending of two calls that were answered. */
  readonly longestGapMs: number
}

export interface RapidCalls {
  /** Calls that were sent since the last look, or since the beginning, and whose time to be answered is over. */
  look(): Promise<RapidReport>
  stop(): Promise<void>
}

/** bench:handover sets more: a test asks for gaps of seconds, and a hundred take a tenth of the machine. */
export const CALLS_PER_SECOND = Number(process.env['SEALANE_CALLS_PER_SECOND'] ?? 20)

const LIMIT_SECONDS = 1800
const FOLDER = '/tmp/rapid-calls'
/** An answer that comes later than this is none. */
const PATIENCE_MS = 3000

/**
 * Each call has a socket of its own, so that answers cannot be taken for those of others. A line for each, in the order
 * of sending: the milliseconds at which it was sent, and 1 or 0.
 */
const CALLER = `
use strict; use IO::Socket::INET; use IO::Select; use Time::HiRes qw(time sleep);
my ($host, $folder) = @ARGV; $| = 1;
my ($next, %open, @calls) = (time);
my $select = IO::Select->new;
until (-e "$folder/hang-up") {
  while (time >= $next) {
    my $socket = IO::Socket::INET->new(PeerAddr => $host, PeerPort => 42, Proto => "udp");
    my $call = { at => time, answered => 0, socket => $socket };
    if ($socket) { $socket->send("hi"); $open{fileno $socket} = $call; $select->add($socket) }
    push @calls, $call; $next += ${1 / CALLS_PER_SECOND};
  }
  my $pause = $next - time; $pause = 0 if $pause < 0;
  # A select without sockets would not wait.
  for my $socket ($select->count > 0 ? $select->can_read($pause) : do { sleep $pause; () }) {
    my $call = delete $open{fileno $socket}; $select->remove($socket);
    my $said = ""; $socket->recv($said, 64); $call->{answered} = 1 if length $said; delete $call->{socket}; close $socket;
  }
  while (@calls && time - $calls[0]{at} > ${PATIENCE_MS / 1000}) {
    my $call = shift @calls;
    if (my $socket = $call->{socket}) { $select->remove($socket); delete $open{fileno $socket}; close $socket }
    printf "%d %d\\n", $call->{at} * 1000, $call->{answered};
  }
}
`

/** Calls UDP port 42 of an address from the pod `request`. Resolves once it is answered. */
export async function callRapidly(site: Site, namespace: string, address: string): Promise<RapidCalls> {
  const script = `rm -rf ${FOLDER}; mkdir ${FOLDER}; exec perl -e '${CALLER.replaceAll("'", '')}' ${address} ${FOLDER} > ${FOLDER}/lines`
  const argv = ['sh', '-c', script]
  const ended = execInPod(site.kubeconfig, { namespace, pod: 'request', argv, timeoutSeconds: LIMIT_SECONDS })
  let seen = 0
  const read = async (): Promise<string[]> => {
    const output = await inRequestPod(site, namespace, `tail -n +${seen + 1} ${FOLDER}/lines`)
    return output
      .slice(0, output.lastIndexOf('\n') + 1)
      .split('\n')
      .filter((line) => line !== '')
  }
  await eventually(async () => (await read()).some((line) => line.endsWith(' 1')), {
    deadlineMs: 30_000,
    intervalMs: 200,
    say: `${address} answers ${site.name}`,
  })
  seen += (await read()).length
  return {
    look: async () => {
      // Those sent until now have had their time.
      await new Promise((resolve) => setTimeout(resolve, PATIENCE_MS + 200))
      const lines = await read()
      seen += lines.length
      return reportOf(lines)
    },
    stop: async () => {
      await inRequestPod(site, namespace, `touch ${FOLDER}/hang-up`)
      const { code, stderr } = await ended
      if (code !== 0) throw new Error(`the calls ended with code ${code}: ${stderr}`)
    },
  }
}

function reportOf(lines: readonly string[]): RapidReport {
  const calls = lines.map((line) => line.split(' ').map(Number) as [number, number])
  const answered = calls.filter(([, ok]) => ok === 1).map(([at]) => at)
  const marks = [calls[0]?.[0] ?? NaN, ...answered, calls.at(-1)?.[0] ?? NaN]
  const gaps = marks.slice(1).map((at, i) => at - (marks[i] ?? NaN))
  return { calls: calls.length, unanswered: calls.length - answered.length, longestGapMs: Math.max(...gaps) }
}
