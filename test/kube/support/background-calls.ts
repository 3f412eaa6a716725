/**
 * Calls to several places at once that go on in the pod `request` without anybody listening, so that they outlive the
 * cluster's own API server.
 */
import { eventually } from '../../support/eventually.ts'
import type { Site } from './callers.ts'
import { execInPod } from './node.ts'

export interface CallTarget {
  readonly name: string
  /** A program and its arguments, which prints the answer of one call. */
  readonly argv: readonly string[]
  /** What it may take; it is killed then. */
  readonly seconds: number
  /** What an answer of the right one looks like. */
  readonly answer: RegExp
}

export interface CallReport {
  readonly calls: number
  readonly unanswered: number
  /** Longest time between two answers, from one call's end to the other's. */
  readonly longestGapMs: number
  /** Milliseconds since 1970; 0 where there was no gap. */
  readonly gapEndsMs: number
}

export interface BackgroundCalls {
  /** Answers so far, of the target with the fewest. */
  answered(): Promise<number>
  /** Hangs up; gives what became of each target by its name. Throws when the calls had ended before. */
  stop(): Promise<ReadonlyMap<string, CallReport>>
}

const FOLDER = '/tmp/background-calls'
const PAUSE_SECONDS = 0.2

/**
 * One process that starts one program for each call: a loop of the shell starts seven, and then the calls take more
 * of the machine than what they call. Writes a line with the time for each call, until somebody hangs up.
 */
const CALLER = `
use strict; use Time::HiRes qw(time sleep);
my ($file, $hang_up, $seconds, @command) = @ARGV;
open my $lines, ">>", $file or die; select $lines; $| = 1;
until (-e $hang_up) {
  my $answer = "";
  my $pid = open my $said, "-|", @command;
  eval {
    local $SIG{ALRM} = sub { kill "KILL", $pid; die };
    alarm $seconds; $answer = join "", <$said>; alarm 0;
  };
  close $said;
  my $last = (split /\\n/, $answer)[-1];
  printf "%d %s\\n", time * 1000, length $last ? $last : "nobody";
  sleep ${PAUSE_SECONDS};
}
`

/** Throws when a target has not answered within 30 s. One at a time for each pod. */
export async function callInBackground(
  site: Site,
  namespace: string,
  targets: readonly CallTarget[],
): Promise<BackgroundCalls> {
  const inPod = (script: string): Promise<string> => run(site, namespace, script)
  const read = async (): Promise<readonly (readonly Line[])[]> => {
    const texts = await inPod(targets.map((_, i) => `cat ${FOLDER}/${i}; echo`).join('; echo =; '))
    return texts.split('\n=\n').map(parseLines)
  }
  const answered = async (): Promise<number> => {
    const lines = await read()
    return Math.min(...targets.map(({ answer }, i) => (lines[i] ?? []).filter(({ text }) => answer.test(text)).length))
  }
  await inPod(`rm -rf ${FOLDER}; mkdir ${FOLDER}; ${targets.map(start).join('\n')}`)
  await eventually(async () => (await answered()) > 0, {
    deadlineMs: 30_000,
    say: `${targets.map(({ name }) => name).join(' and ')} answer ${site.name}`,
  })
  return {
    answered,
    stop: async () => {
      const ended = targets.map((_, i) => `[ -e ${FOLDER}/${i}.ended ]`).join(' && ')
      await inPod(`touch ${FOLDER}/hang-up`)
      await eventually(async () => (await inPod(`${ended} && echo ended`)).trim() === 'ended', {
        deadlineMs: 30_000,
        say: `the calls of ${site.name} end`,
      })
      const lines = await read()
      return new Map(targets.map(({ name, answer }, i) => [name, report(lines[i] ?? [], answer)]))
    },
  }
}

function start({ argv, seconds }: CallTarget, i: number): string {
  const file = `${FOLDER}/${i}`
  const words = [CALLER, file, `${FOLDER}/hang-up`, String(seconds), ...argv].map((word) => `'${word}'`)
  return `: > ${file}; ( perl -e ${words.join(' ')} && touch ${file}.ended ) < /dev/null > /dev/null 2>&1 &`
}

interface Line {
  readonly ms: number
  readonly text: string
}

function parseLines(output: string): readonly Line[] {
  const lines = output.split('\n').map((line) => line.trim())
  return lines.flatMap((line) => {
    const space = line.indexOf(' ')
    return space < 0 ? [] : [{ ms: Number(line.slice(0, space)), text: line.slice(space + 1) }]
  })
}

async function run(site: Site, namespace: string, script: string): Promise<string> {
  const what = { namespace, pod: 'request', argv: ['sh', '-c', script], timeoutSeconds: 30 }
  const { code, stdout, stderr } = await execInPod(site.kubeconfig, what)
  if (code === 255) throw new Error(`the script did not run in ${namespace}/request of ${site.name}: ${stderr}`)
  return stdout
}

function report(lines: readonly Line[], answer: RegExp): CallReport {
  const answers = lines.filter(({ text }) => answer.test(text))
  // The last call may have gone unanswered for as long as any.
  const marks = [...answers, ...lines.slice(-1)].map(({ ms }) => ms)
  const gaps = marks.slice(1).map((ms, i) => ({ ms, gapMs: ms - (marks[i] ?? NaN) }))
  const longest = gaps.reduce((most, gap) => (gap.gapMs > most.gapMs ? gap : most), { ms: 0, gapMs: 0 })
  const unanswered = lines.length - answers.length
  return { calls: lines.length, unanswered, longestGapMs: longest.gapMs, gapEndsMs: longest.ms }
}
