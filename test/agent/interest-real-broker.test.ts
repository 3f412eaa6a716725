/**
 * Three clusters with different namespaces, over TLS through a real broker: each receives only the records of its own
 * namespaces.
 */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { decodeReplica } from '../../protocol/replica/replica-file.ts'
import type { Replica } from '../../protocol/replica/record-replica.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { namespaceObject } from '../support/objects/service-objects.ts'
import { Member, startBroker } from './real-members.ts'
import { service, serviceExport, slice } from './site.ts'

const DEADLINE_MS = 20_000

t.test('namespaces that come, go and come back, restarts of members and of the broker', async (t) => {
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
  const offer = (member: Member, namespace: string, address: string): void => {
    member.api.put(namespaceObject(namespace))
    member.api.put(service(namespace, 'web'))
    member.api.put(slice(namespace, 'web', address))
    member.api.put(serviceExport(namespace, 'web'))
  }
  /** Reads the saved replica, which holds only the records of this cluster's namespaces. */
  const saved = async (id: string): Promise<Replica> => {
    const folder = join(directory, id, 'agent')
    const name = (await readdir(folder)).find((file) => file.startsWith('replica-') && !file.endsWith('.tmp'))
    return decodeReplica(await readFile(join(folder, name ?? 'none')))
  }
  const known = async (id: string): Promise<string> => {
    const replica = await saved(id).catch(() => undefined)
    const spaces = [...(replica?.records.values() ?? [])].map(({ key }) => key.namespace)
    return [...new Set(spaces.filter((space) => space !== ''))].sort().join()
  }
  const imports = ({ api }: Member): string =>
    api
      .cache('ServiceImport')
      .list()
      .map(({ metadata, status }) => {
        const clusters = (status?.clusters ?? []).map(({ cluster }) => cluster)
        return `${metadata.namespace ?? ''}/${metadata.name}=${clusters.join('+')}`
      })
      .sort()
      .join()
  const settles = async (read: () => string | undefined | Promise<string>, want: string): Promise<void> => {
    let last: string | undefined
    await eventually(async () => (last = await read()) === want, { say: want, deadlineMs: DEADLINE_MS }).catch(
      (error: unknown) => {
        throw new Error(`${String(error)}: ${String(last)}`)
      },
    )
  }
  const imported = (): string | undefined =>
    milano.api
      .get('ServiceExport', 'web', 'blue')
      ?.status?.conditions?.find(({ type }) => type === 'sealane.io/Imported')?.message

  offer(milano, 'shop', '10.42.0.5')
  offer(milano, 'blue', '10.42.0.6')
  offer(paris, 'red', '10.42.0.7')
  await settles(() => imports(tokyo), 'shop/web=milano')
  await settles(() => imports(paris), 'red/web=paris,shop/web=milano')
  await settles(() => known('tokyo'), 'shop')
  await settles(() => known('paris'), 'red,shop')
  await settles(imported, 'no member imports it: namespace blue is missing in paris, tokyo')

  tokyo.api.put(namespaceObject('blue'))
  await settles(() => imports(tokyo), 'blue/web=milano,shop/web=milano')
  await settles(imported, 'imported by tokyo; namespace blue is missing in paris')
  paris.api.put(namespaceObject('blue'))
  await settles(imported, 'imported by paris, tokyo')

  // The agent may use the saved records of its namespaces after a restart, even while the broker is away.
  await settles(() => known('tokyo'), 'blue,shop')
  await tokyo.stop()
  await broker.stop()
  tokyo.start(config)
  await settles(() => known('tokyo'), 'blue,shop')
  t.equal(imports(tokyo), 'blue/web=milano,shop/web=milano')
  // A new namespace appears while the broker is away. The replica has no records of it, and the agent removes nothing.
  tokyo.api.put(namespaceObject('red'))
  await settles(() => known('tokyo'), 'blue,shop')
  t.equal(imports(tokyo), 'blue/web=milano,shop/web=milano')
  broker = await startBroker(brokerDirectory, port)
  await settles(() => imports(tokyo), 'blue/web=milano,red/web=paris,shop/web=milano')

  // The namespace is deleted and created again at once.
  for (const object of tokyo.api.cache('ServiceImport').list())
    if (object.metadata.namespace === 'blue') tokyo.api.drop('ServiceImport', object.metadata.name, 'blue')
  tokyo.api.drop('Namespace', 'blue')
  await settles(imported, 'imported by paris; namespace blue is missing in tokyo')
  tokyo.api.put(namespaceObject('blue'))
  await settles(() => imports(tokyo), 'blue/web=milano,red/web=paris,shop/web=milano')
  milano.api.drop('ServiceExport', 'web', 'blue')
  await settles(() => imports(tokyo), 'red/web=paris,shop/web=milano')
  t.equal(
    milano.logger
      .messages()
      .concat(tokyo.logger.messages())
      .filter((line) => line.includes('skipped')).length,
    0,
  )
})
