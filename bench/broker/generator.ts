/** A process of simulated members. Each message of its parent names a method of one of the objects below. */
import { Fleet, type FleetInit } from './fleet.ts'
import { EtcdWatchers } from './peers/etcd-watchers.ts'
import { FloorClients } from './peers/floor-clients.ts'

export interface Ask {
  readonly id: number
  readonly on: 'fleet' | 'floor' | 'etcd'
  readonly method: string
  readonly args: unknown
}

export interface Answer {
  readonly id: number
  readonly result?: unknown
  readonly error?: string
}

const init = JSON.parse(process.argv[2] ?? '') as FleetInit
const things = { fleet: new Fleet(init), floor: new FloorClients(), etcd: new EtcdWatchers() }

process.on('message', ({ id, on, method, args }: Ask) => {
  const thing = things[on] as unknown as Readonly<Record<string, (args: unknown) => unknown>>
  new Promise((resolve) => resolve(thing[method]?.(args))).then(
    (result) => process.send?.({ id, result } satisfies Answer),
    (error: unknown) => process.send?.({ id, error: String(error) } satisfies Answer),
  )
})
process.once('disconnect', () => process.exit(0))
