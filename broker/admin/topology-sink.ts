/** Where a follower of an object in the broker's cluster hands over the topology that the object states. */
import type { TopologySet } from '../../protocol/admin/admin.ts'
import type { CommandInit } from './command-state.ts'
import type { TopologyCommands } from './topology-commands.ts'

export interface TopologySink {
  /** Whether this broker is the one of its replicas that sets it. */
  isWriter(): boolean
  /**
   * Sets the topology that an object states; `object` is its title. Throws RefusedError (InvalidValue,
   * TopologyNotSupported, TopologyNotFollowed), and StateError if the store cannot be used. Nothing is changed then.
   */
  set(topology: unknown, object: string): Promise<TopologySet>
  /** The object is gone: the topology stays. Returns the title of the object if that had set it. Throws StateError. */
  release(): Promise<string | undefined>
}

export function topologySink(init: CommandInit, isWriter: () => boolean): TopologySink {
  // Its schemas are loaded with the first call.
  const commands = async (): Promise<TopologyCommands> => {
    const { TopologyCommands } = await import('./topology-commands.ts')
    return new TopologyCommands(init)
  }
  return {
    isWriter,
    set: async (topology, object) => (await commands()).follow(topology, object),
    release: async () => (await commands()).release(),
  }
}
