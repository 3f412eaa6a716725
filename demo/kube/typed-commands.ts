/** Commands of Sealane as a user types them: with KUBECONFIG set, in a folder of his own, and said before they run. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { atExit } from '../../test/support/at-exit.ts'
import { ROOT } from '../../test/support/source-tree.ts'

const SEALANE = join(ROOT, 'bin', 'sealane')
const DEADLINE_MS = 240_000

export interface TypedCommandsInit {
  /** Where they run: relative file names are in it. */
  readonly directory: string
  readonly kubeconfig: string
  /** Called with each command as it was typed, and the last line of its answer. */
  readonly say: (line: string) => void
}

export interface CommandOutput {
  readonly stdout: string
  readonly stderr: string
  readonly ms: number
}

export class TypedCommands {
  readonly #init: TypedCommandsInit

  constructor(init: TypedCommandsInit) {
    this.#init = init
  }

  /** Runs `sealane WORDS` and says so. Throws with all that it said when its code is not 0, and after four minutes. */
  async type(words: string): Promise<CommandOutput> {
    this.#init.say(`$ sealane ${words}`)
    const done = await this.run(words)
    const answer = done.stdout.trimEnd().split('\n').at(-1) ?? ''
    // A token is not for everybody who reads the account.
    if (answer !== '' && !answer.includes('sealane1.'))
      this.#init.say(`  ${answer}  (${(done.ms / 1000).toFixed(1)} s)`)
    return done
  }

  /** The same without a word. */
  async run(words: string): Promise<CommandOutput> {
    const { directory, kubeconfig } = this.#init
    const began = performance.now()
    const child = spawn(SEALANE, words.split(' '), {
      cwd: directory,
      env: { ...process.env, KUBECONFIG: kubeconfig },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: DEADLINE_MS,
      killSignal: 'SIGKILL',
    })
    const forget = atExit('programs', () => child.kill('SIGKILL'))
    const said = { stdout: '', stderr: '' }
    for (const name of ['stdout', 'stderr'] as const) {
      child[name].setEncoding('utf8').on('data', (chunk: string) => (said[name] += chunk))
    }
    const [code] = (await once(child, 'close')) as [number | null]
    forget()
    if (code === 0) return { ...said, ms: performance.now() - began }
    throw new Error(`sealane ${words} ended with ${code ?? 'SIGKILL'}: ${said.stdout}${said.stderr}`.trim())
  }
}
