/** Two brokers on one store, where one has not seen yet what the other has written. */
import t from 'tap'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { Publisher, Watcher, anExport, join_, startBroker } from './support/harness.ts'

t.test('a member that has seen more than this broker resumes here, and does not begin from nothing', async (t) => {
  const stateDir = temporaryFolder(t)
  const ahead = await startBroker(t, { stateDir })
  const { peer } = await join_(ahead, 'milano')
  const behind = await startBroker(t, { stateDir, clock: ahead.clock })
  const publisher = new Publisher(ahead, peer)
  await publisher.publish([anExport('web')])
  const first = new Watcher(ahead, peer)
  await first.line(/^synced/)
  await first.stop()
  t.ok(behind.log.revision < first.revision, 'it lags')
  const resume = { epoch: first.epoch, revision: first.revision }
  const second = new Watcher(behind, peer, { resume })
  await second.line(/^synced/)
  t.equal(second.lines[0], 'reset resumed')
  t.equal(second.lines.filter((line) => line.startsWith('put')).length, 0, 'nothing comes again')
  await second.stop()
})

t.test('who joined at the other a moment ago is a member here', async (t) => {
  const stateDir = temporaryFolder(t)
  const ahead = await startBroker(t, { stateDir })
  const behind = await startBroker(t, { stateDir, clock: ahead.clock })
  const { peer } = await join_(ahead, 'milano')
  t.equal(behind.log.get('member', 'milano'), undefined, 'it lags')
  const watcher = new Watcher(behind, peer)
  await watcher.line(/^synced/)
  await watcher.stop()
  t.equal(watcher.failure, undefined)
})

t.test('who begins here is told the present state, whatever has been resumed', async (t) => {
  const stateDir = temporaryFolder(t)
  const ahead = await startBroker(t, { stateDir })
  const { peer } = await join_(ahead, 'milano')
  const behind = await startBroker(t, { stateDir, clock: ahead.clock })
  const publisher = new Publisher(ahead, peer)
  await publisher.publish([])
  // Here it is already a member.
  await behind.log.refresh()
  const { epoch, revision } = behind.log
  // An agent took over that acted before "web" came; the one before it wrote "web" from the word of the other broker.
  for (const [i, resume] of [undefined, { epoch, revision }].entries()) {
    await publisher.publish([anExport(`web${i}`)])
    t.ok(behind.log.revision < ahead.log.revision, 'it lags')
    const watcher = new Watcher(behind, peer, resume === undefined ? {} : { resume })
    await watcher.line(/^synced/)
    const before = watcher.lines.slice(
      0,
      watcher.lines.findIndex((line) => line.startsWith('synced')),
    )
    t.ok(
      before.some((line) => line.startsWith('put') && line.includes(`web${i}`)),
      `before "synced": ${before.join('; ')}`,
    )
    await watcher.stop()
  }
})

t.test('what cannot be looked up is an error, not a new beginning', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const { epoch, revision } = harness.log
  await harness.log.close()
  const watcher = new Watcher(harness, peer, { resume: { epoch, revision: revision + 5 } })
  t.match(await watcher.ended(), { message: 'the log is closed' })
  t.same(watcher.lines, [])
})
