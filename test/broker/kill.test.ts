import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import t from 'tap'
import { openSqliteLog } from '../../broker/store/sqlite/sqlite-log.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const ROUNDS = 8
const WRITER = join(import.meta.dirname, 'support/writer-process.ts')

t.test('kill -9 at any moment loses nothing acknowledged and tears no unit', async (t) => {
  const path = temporaryFolder(t)
  const file = join(path, 'broker.db')
  let revision = 0
  let acknowledged = 0
  for (let round = 0; round < ROUNDS; round += 1) {
    const acks = await writeUntilKilled(file, 1 + Math.floor(Math.random() * 400))
    acknowledged += acks.length
    const log = openSqliteLog({ file })
    t.ok(log.revision >= revision + acks.length, `round ${round}: revisions go on, ${acks.length} acknowledged`)
    revision = log.revision
    const latest = new Map(acks.map((ack) => ack.split(' ') as [string, string]))
    const lost = [...latest].filter(([key, value]) => !isAtLeast(log.get('address', key)?.service, value))
    t.same(lost, [], 'every acknowledged write, or a later one of the same key, is there')
    const torn = log.list('address').filter(({ key, value }) => {
      const body = log.get('record', key)?.body
      return (body?.kind === 'ClusterSetIP' ? body.ips[0] : 'gone') !== value.service
    })
    t.same(torn, [], 'both halves of each unit agree')
    await log.close()
  }
  t.ok(acknowledged > 0, `${acknowledged} acknowledged writes in all`)
})

/**
 * Returns whether the stored value is at least as new as the acknowledged one. A newer write of the same key may be
 * stored and not printed yet.
 */
function isAtLeast(stored: string | undefined, acknowledged: string): boolean {
  if (stored === undefined) return false
  if (stored === acknowledged || stored === 'gone' || acknowledged === 'gone') return true
  const counter = (value: string): number => Number(value.split('-')[2])
  return counter(stored) >= counter(acknowledged)
}

/** Kills the writer after it has acknowledged this many writes, and returns all the lines that it printed. */
async function writeUntilKilled(file: string, after: number): Promise<string[]> {
  const child = spawn(process.execPath, [WRITER, file], { stdio: ['ignore', 'pipe', 'inherit'] })
  let text = ''
  let killed = false
  child.stdout.setEncoding('utf8')
  child.stdout.on('data', (chunk: string) => {
    text += chunk
    if (!killed && text.split('\n').length > after) {
      killed = true
      child.kill('SIGKILL')
    }
  })
  await once(child, 'close')
  return text.split('\n').slice(0, -1)
}
