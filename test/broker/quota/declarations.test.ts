/** A member makes the broker compare its set again and again. */
import t from 'tap'
import { eventually } from '../../support/eventually.ts'
import { Publisher, anExport, declaration, join_, startBroker } from '../support/harness.ts'

const web = anExport('web')

t.test('who declares its set without end writes nothing by it, and takes a share of the time', async (t) => {
  const harness = await startBroker(t)
  Object.assign(harness.log, { isShared: true })
  const { peer } = await join_(harness, 'milano')
  const stream = new Publisher(harness, peer)
  await stream.publish([web])
  const { revision } = harness.log
  for (let i = 0; i < 5; i += 1) await stream.send(declaration([web]))
  t.equal(harness.log.revision, revision)

  // Each look of the broker at the records of this member takes 200 ms.
  const { clock } = harness
  const monotonic = clock.monotonic.bind(clock)
  let looked = 0
  clock.monotonic = () => monotonic() + (looked += 200)
  const answers = stream.replies.length
  let sent = 0
  const sending = (async () => {
    for (; sent < 500; sent += 1) await stream.send(declaration([web]))
  })()
  sending.catch(() => undefined)
  await eventually(() => clock.pending('sleep').length > 0)
  t.ok(sent < 100, `${sent} were answered at once`)
  t.equal(stream.replies.length, answers + sent)
  stream.end()
  await t.rejects(sending)
})
