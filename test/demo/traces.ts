/** The folders, namespaces and processes of a demo on this machine, each as a line that identifies it uniquely. */
import { readFileSync, readdirSync, readlinkSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { FOLDER_PREFIX } from '../../demo/kube/kept-clusters.ts'
import { namedNetns, orphanedNetns } from '../support/netns-names.ts'

/** The common beginning of the names of both demos. */
const PREFIX = FOLDER_PREFIX.replace(/kube-$/, '')
const NETNS = '/run/netns'

/**
 * `mark` is an environment variable of the demo, as `NAME=value`. Most of its programs inherit it. The others name the
 * demo's folder in their arguments, or work in it.
 */
export function demoTraces(mark: string): readonly string[] {
  const namespaces = [...namedNetns().filter((name) => name.startsWith(PREFIX)), ...orphanedNetns()]
  const folders = [tmpdir(), '/etc/netns'].flatMap((folder) =>
    entries(folder).flatMap((name) => (name.startsWith(PREFIX) ? [join(folder, name)] : [])),
  )
  const processes = entries('/proc').filter((pid) => /^\d+$/.test(pid) && Number(pid) !== process.pid)
  return [
    ...namespaces.map((name) => `network namespace ${name}${age(join(NETNS, name))}`),
    ...folders.map((path) => `folder ${path}${age(path)}`),
    ...processes.flatMap((pid) => processOf(pid, mark) ?? []),
  ]
}

/** Names are reused, so the inode number and its change time identify the folder. */
function age(path: string): string {
  const { ino, ctimeMs } = statSync(path, { throwIfNoEntry: false }) ?? { ino: 0, ctimeMs: 0 }
  return ` (${ino}, ${ctimeMs})`
}

function processOf(pid: string, mark: string): string | undefined {
  try {
    const [words, environment] = [read(pid, 'cmdline'), read(pid, 'environ')]
    const text = words.join(' ').trim()
    // A process that has ended and was not yet reaped has an empty command line.
    if (text === '') return undefined
    const isOfDemo = environment.includes(mark) || `${readlinkSync(`/proc/${pid}/cwd`)} ${text}`.includes(`/${PREFIX}`)
    return isOfDemo ? `process ${pid} ${text}` : undefined
  } catch {
    // The process has just ended.
    return undefined
  }
}

function read(pid: string, file: 'cmdline' | 'environ'): readonly string[] {
  return readFileSync(`/proc/${pid}/${file}`, 'utf8').split('\0')
}

function entries(folder: string): readonly string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}
