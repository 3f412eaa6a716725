/** A broker's state that went back, or was lost, while its key stayed. */
import { cpSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { failure } from '../support/failure.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { attack } from './support/attack.ts'
import { brokerHere } from './support/broker-here.ts'
import { openChannel } from './support/raw-channel.ts'
import { rawJoin } from './support/raw-join.ts'
import { RawPublish } from './support/raw-publish.ts'

/** Two members joined it; `before` is a copy of all of it from between them. */
async function usedState(t: Test) {
  const before = join(temporaryFolder(t), 'before')
  const first = await brokerHere(t)
  const { state } = first
  await rawJoin(first, 'milano')
  await first.stop()
  cpSync(state, before, { recursive: true })
  const second = await brokerHere(t, { state })
  const paris = await rawJoin(second, 'paris')
  await second.stop()
  return { state, before, paris }
}

function dropDatabase(state: string): void {
  for (const suffix of ['', '-wal', '-shm']) rmSync(join(state, `broker.db${suffix}`), { force: true })
}

await attack('broker-state-lost', async (t) => {
  const { state } = await usedState(t)
  dropDatabase(state)
  t.match(await failure(brokerHere(t, { state })), {
    code: 'Stale',
    message: /it is not there, but ca\.crt is.*--accept-empty/,
  })
  await (await brokerHere(t, { state, acceptEmptyAtMs: Date.now() })).stop()
})

await attack('broker-state-older', async (t) => {
  const { state, before } = await usedState(t)
  dropDatabase(state)
  cpSync(join(before, 'broker.db'), join(state, 'broker.db'))
  t.match(await failure(brokerHere(t, { state })), { code: 'Stale', message: /it is older: revision \d+/ })
})

await attack('broker-state-older-with-mark', async (t) => {
  const { before, paris } = await usedState(t)
  const broker = await brokerHere(t, { state: before })
  const channel = openChannel(broker, paris)
  t.teardown(() => channel.close())
  const { code } = await new RawPublish(channel).ended()
  t.equal(code, 7, 'PERMISSION_DENIED')
  const reported = await eventually(() =>
    broker.logger.lines.find(
      ({ message }) => message === 'a member shows a certificate that this broker does not know',
    ),
  )
  t.match(reported, {
    level: 'error',
    fields: { cluster: 'paris', reason: 'CertificateUnknown', why: /restore the latest backup/ },
  })
})
