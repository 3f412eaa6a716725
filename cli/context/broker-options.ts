/** The options of commands that ask or change a broker, running or stopped, on this machine or in a cluster. */
import type { Command } from 'commander'
import { clustersetOption, outputOption, stateOption } from './command-context.ts'
import type { OutputFormat } from './output.ts'
import { type KubeTarget, addKubeOptions } from './target.ts'
import { lookTimeoutOption } from './timeout.ts'

export interface BrokerOptions extends KubeTarget {
  readonly state: string
  /** Absent: the broker's own. */
  readonly clusterset?: string
  readonly output: OutputFormat
  /** In milliseconds. */
  readonly timeout: number
}

/** Adds the options of BrokerOptions. `otherwise` says what counts without a cluster, as for addKubeOptions(). */
export function addBrokerOptions(command: Command, otherwise: string): Command {
  return addKubeOptions(command, otherwise)
    .addOption(stateOption())
    .addOption(clustersetOption())
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
}

/** The same for a command about the whole broker, with all of its clustersets. */
export function addWholeBrokerOptions(command: Command, otherwise: string): Command {
  return addKubeOptions(command, otherwise)
    .addOption(stateOption())
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
}
