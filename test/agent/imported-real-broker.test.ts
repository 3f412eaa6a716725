/** Members report over TLS, through a real broker, which services they import. */
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { namespaceObject } from '../support/objects/service-objects.ts'
import { service, serviceExport, slice } from './site.ts'

import { Member, startBroker } from './real-members.ts'

t.test('an exporter hears who imports its service, also from a broker that lost its memory of it', async (t) => {
  const directory = temporaryFolder(t)
  const brokerDirectory = join(directory, 'broker')
  let broker = await startBroker(brokerDirectory, 0)
  const { port } = broker
  const members = ['milano', 'paris', 'tokyo'].map((id) => new Member(id, directory))
  const [milano, paris, tokyo] = members as [Member, Member, Member]
  t.teardown(async () => {
    await Promise.all(members.map((one) => one.stop()))
    await broker.stop()
  })
  const config = { reportMs: 50 }
  for (const one of members) {
    await one.join(brokerDirectory, port)
    one.start(config)
  }
  tokyo.api.drop('Namespace', 'shop')
  milano.api.put(service('shop', 'web'))
  milano.api.put(slice('shop', 'web', '10.42.0.5'))
  milano.api.put(serviceExport('shop', 'web'))
  const imported = (): string | undefined =>
    milano.api
      .get('ServiceExport', 'web', 'shop')
      ?.status?.conditions?.find(({ type }) => type === 'sealane.io/Imported')?.message
  const want = 'imported by paris; namespace shop is missing in tokyo'
  await eventually(() => imported() === want, { say: want, deadlineMs: 10_000 })

  // A member sends its status again on each stream, because the broker may have lost it.
  await broker.stop()
  const store = new DatabaseSync(join(brokerDirectory, 'broker.db'))
  store.exec("DELETE FROM entry WHERE scope = 'record' AND key LIKE '%/MemberStatus/%'")
  store.close()
  broker = await startBroker(brokerDirectory, port)
  await eventually(
    () => {
      const reader = new DatabaseSync(join(brokerDirectory, 'broker.db'), { readOnly: true })
      const rows = reader.prepare("SELECT key FROM entry WHERE key LIKE '%/MemberStatus/%' AND value IS NOT NULL").all()
      reader.close()
      return rows.length === 3
    },
    { say: 'all have told it again', deadlineMs: 20_000 },
  )
  tokyo.api.put(namespaceObject('shop'))
  await eventually(() => imported() === 'imported by paris, tokyo', {
    say: 'tokyo has the namespace',
    deadlineMs: 20_000,
  })

  await paris.stop()
  tokyo.api.drop('Namespace', 'shop')
  await eventually(() => imported() === want, { say: 'the last word of one that is away counts', deadlineMs: 10_000 })
})
