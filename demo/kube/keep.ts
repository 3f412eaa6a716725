/** `--keep`: the clusters are made and held by a process of their own, so that the terminal is free afterwards. */
import { fork } from 'node:child_process'
import { mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Word } from './keeper.ts'
import { FOLDER_PREFIX, KEEPER, findKept, sweepKept } from './kept-clusters.ts'

export interface KeepOptions {
  readonly json: boolean
  readonly flat: boolean
}

/** Throws when clusters are kept already. */
export function nothingIsKept(): void {
  const [kept] = findKept()
  if (kept !== undefined) {
    const kubeconfig = join(kept.directory, 'kubeconfig')
    throw new Error(
      `one demo is kept already: KUBECONFIG=${kubeconfig}; look at it, or end it: npm run demo:kube -- --sweep`,
    )
  }
}

/** How a process ends that takes away what it made at SIGTERM (test/support/at-exit.ts). */
const STOPPED = 128 + 15

/**
 * Resolves with the exit code once the clusters run, or with 1 when that has failed and nothing is left of them. An
 * abort takes away what is there so far; then it rejects with the reason of the abort, or resolves with 1 when the
 * keeper ended in another way than it does when it is stopped.
 */
export async function keepClusters({ json, flat }: KeepOptions, signal: AbortSignal): Promise<number> {
  await sweepKept()
  signal.throwIfAborted()
  const directory = mkdtempSync(join(tmpdir(), FOLDER_PREFIX))
  const log = openSync(join(directory, 'keeper.log'), 'w+', 0o600)
  const args = [directory, json ? 'json' : 'person', flat ? 'flat' : 'overlapping']
  const keeper = fork(KEEPER, args, { detached: true, stdio: ['ignore', log, log, 'ipc'] })
  const end = (): void => void keeper.kill('SIGTERM')
  signal.addEventListener('abort', end)
  return await new Promise<number>((resolve, reject) => {
    keeper.on('message', (word: Word) => {
      if ('out' in word) process.stdout.write(word.out)
      else if ('account' in word) (json ? process.stderr : process.stdout).write(word.account)
      else resolve(word.kept)
    })
    keeper.once('exit', (code, by) => {
      // It takes its folder away, if it has lived long enough to know of it; an open file stays readable.
      process.stderr.write(readFileSync(`/proc/self/fd/${log}`))
      rmSync(directory, { recursive: true, force: true })
      if (signal.aborted && (code === STOPPED || by === 'SIGTERM')) reject(signal.reason as Error)
      else resolve(1)
    })
  })
}
