/**
 * What `--keep` leaves: a process that holds three clusters, known by its folder. The folder has the keeper's process
 * id; it counts only while that process is this program on this folder.
 */
import { existsSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sweepNetns } from '../../test/support/netns-names.ts'
import { until } from '../until.ts'

/** What the folders of this demo begin with. */
export const FOLDER_PREFIX = 'sealane-demo-kube-'
const PID_FILE = 'keeper.pid'
export const KEEPER = join(import.meta.dirname, 'keeper.ts')

export interface KeptClusters {
  readonly directory: string
  readonly pid: number
}

export function pidFile(directory: string): string {
  return join(directory, PID_FILE)
}

/** Those whose keeper lives. */
export function findKept(): readonly KeptClusters[] {
  return keptFolders().flatMap((directory) => {
    const pid = keeperOf(directory)
    return pid === undefined ? [] : [{ directory, pid }]
  })
}

/**
 * Ends what is kept and waits until it is gone; removes what a keeper that was killed has left. Gives how many were
 * ended.
 */
export async function sweepKept(): Promise<number> {
  const kept = findKept()
  for (const { pid } of kept) process.kill(pid, 'SIGTERM')
  for (const { directory, pid } of kept) {
    await until(`the keeper ${pid} to end`, 60_000, () => Promise.resolve(keeperOf(directory) === undefined))
  }
  for (const directory of keptFolders()) rmSync(directory, { recursive: true, force: true })
  sweepNetns()
  return kept.length
}

/** Folders that had a keeper; of this user, so that nobody else can name a process to be ended. */
function keptFolders(): readonly string[] {
  return readdirSync(tmpdir())
    .filter((name) => name.startsWith(FOLDER_PREFIX))
    .map((name) => join(tmpdir(), name))
    .filter((directory) => statSync(directory).uid === process.getuid?.() && existsSync(pidFile(directory)))
}

function keeperOf(directory: string): number | undefined {
  try {
    const pid = Number(readFileSync(pidFile(directory), 'utf8'))
    const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
    return words.includes(KEEPER) && words.includes(directory) ? pid : undefined
  } catch {
    // It has ended, or the folder is just going.
    return undefined
  }
}
