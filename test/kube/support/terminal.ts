/**
 * A terminal at which a test types what a document says: each line is run by a shell on a pseudo terminal, so commands
 * ask their questions as they ask people.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import { delimiter, join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { ROOT } from '../../support/source-tree.ts'

export interface Terminal {
  /** The folder in which the lines are typed. */
  readonly directory: string
  /** The kubeconfig with all contexts. */
  readonly kubeconfig: string
}

export interface Typed {
  /** All that the terminal showed, without carriage returns. */
  readonly shown: string
  /** The questions that were answered, in their order. */
  readonly asked: readonly string[]
  readonly ms: number
}

/** A question, which is not followed by a line end, and what a person who agrees types. */
const QUESTION = /^.*?\? Type yes: /
const ANSWER = 'yes\n'
const DEADLINE_MS = 300_000

/** Runs the lines in a shell, with `sealane` on the path. Throws with all that was shown if the shell's code is not 0. */
export async function typeLines({ directory, kubeconfig }: Terminal, lines: string): Promise<Typed> {
  const began = performance.now()
  const { NODE_OPTIONS: _runner, SEALANE_TOKEN: _token, ...others } = process.env
  const env = {
    ...others,
    KUBECONFIG: kubeconfig,
    PATH: [join(ROOT, 'bin'), others['PATH'] ?? ''].join(delimiter),
    SHELL: '/bin/sh',
  }
  const argv = ['--quiet', '--return', '--flush', '--command', `stty -echo; ${lines}`, '/dev/null']
  const child = spawn('script', argv, { cwd: directory, env, stdio: ['pipe', 'pipe', 'inherit'] })
  const kill = setTimeout(() => child.kill('SIGKILL'), DEADLINE_MS)
  const read = answering(child)
  const [code] = (await once(child, 'close')) as [number | null]
  clearTimeout(kill)
  const { shown, asked } = read()
  if (code !== 0) throw new Error(`${lines}\nended with ${code ?? 'a signal'}:\n${shown}`)
  return { shown, asked, ms: performance.now() - began }
}

type Script = ChildProcessByStdio<Writable, Readable, null>

/** Answers each question once: the line editor may show the same line again. Gives what was read so far. */
function answering({ stdin, stdout }: Script): () => Pick<Typed, 'shown' | 'asked'> {
  let shown = ''
  /** Where the line of the last question begins. */
  let answered = -1
  const asked: string[] = []
  stdout.setEncoding('utf8').on('data', (chunk: string) => {
    // Besides carriage returns, the line editor of Node writes sequences that move the cursor.
    shown += chunk.replaceAll(/\r|\u001b\[[0-9;]*[A-Za-z]/g, '')
    const begin = shown.lastIndexOf('\n') + 1
    const [question] = QUESTION.exec(shown.slice(begin)) ?? []
    if (question === undefined || begin === answered) return
    answered = begin
    asked.push(question.trim())
    stdin.write(ANSWER)
  })
  return () => ({ shown, asked })
}
