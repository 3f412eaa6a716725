/** Two processes that serve with the key in one state folder of a relay: it is said, and both serve. */
import { statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { lockRelayFolder } from '../../compose/relay/relay.ts'
import { type RelayProcessInit, serveRelayProcess } from '../../compose/relay/relay.ts'
import { certificateToPem } from '../../protocol/identity/certificates.ts'
import { authority } from '../relay/relay-site.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

t.test('a folder in use is warned of, and free once the other one has stopped', async (t) => {
  const folder = temporaryFolder(t)
  const ca = join(folder, 'ca.crt')
  writeFileSync(ca, certificateToPem((await authority('demo')).certificate))
  const start = async (more: Partial<RelayProcessInit> = {}) => {
    const stop = new AbortController()
    const listening = Promise.withResolvers<string | undefined>()
    const ended = serveRelayProcess(
      {
        ...{ listen: '127.0.0.1:0', ca: [ca], plain: false, state: join(folder, 'state') },
        ...{ statusListen: ['127.0.0.1:0'], logLevel: 'silent', onListening: listening.resolve },
        ...more,
      },
      stop.signal,
    )
    ended.catch(listening.reject)
    const pin = await listening.promise
    return {
      pin,
      stop: async (): Promise<void> => {
        stop.abort()
        await ended
      },
    }
  }
  const first = await start()
  const isElsewhere = async (): Promise<boolean | undefined> => {
    using lock = await lockRelayFolder(join(folder, 'state'))
    return lock?.isElsewhere
  }
  t.equal(await isElsewhere(), true)
  // As the successor of a rollout, or a standby.
  const second = await start()
  t.equal(second.pin, first.pin)
  const other = await start({ state: join(folder, 'other') })
  t.not(other.pin, first.pin)
  // It uses no key of the folder.
  const plain = await start({ plain: true })
  for (const one of [plain, other, second, first]) await one.stop()
  t.equal(await isElsewhere(), false)
  const again = await start()
  t.equal(again.pin, first.pin)
  t.equal(statSync(join(folder, 'state', 'relay.lock')).mode & 0o077, 0)
  await again.stop()
})

t.test('a folder that cannot be locked is no reason to refuse', async (t) => {
  const file = join(temporaryFolder(t), 'file')
  writeFileSync(file, '')
  t.equal(await lockRelayFolder(join(file, 'state')), undefined)
})
