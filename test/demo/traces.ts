/** What of a demo is on this machine: folders, namespaces and processes, each as a line that nothing else ever has. */
import { readFileSync, readdirSync, readlinkSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { FOLDER_PREFIX } from '../../demo/kube/kept-clusters.ts'
import { namedNetns, orphanedNetns } from '../support/netns-names.ts'

/** What names of both demos begin with. */
const PREFIX = FOLDER_PREFIX.replace(/kube-$/, '')
const NETNS = '/run/netns'

/**
 * `mark` is a variable of the environment that the demo was started with, as `NAME=value`: most of its programs have it
 * too, and the others have its folder among their words or work there.
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

/** Names are given again: which one it is, its inode says, and when it was made. */
function age(path: string): string {
  const { ino, ctimeMs } = statSync(path, { throwIfNoEntry: false }) ?? { ino: 0, ctimeMs: 0 }
  return ` (${ino}, ${ctimeMs})`
}

function processOf(pid: string, mark: string): string | undefined {
  try {
    const [words, environment] = [read(pid, 'cmdline'), read(pid, 'environ')]
    const text = words.join(' ').trim()
    // One that has ended and is only not yet asked about has no words.
    if (text === '') return undefined
    const isOfDemo = environment.includes(mark) || `${readlinkSync(`/proc/${pid}/cwd`)} ${text}`.includes(`/${PREFIX}`)
    return isOfDemo ? `process ${pid} ${text}` : undefined
  } catch {
    // It has just ended.
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
