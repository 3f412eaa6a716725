/**
 * The state of a broker is in one store. A command that names another one would start with nothing, and every member
 * would be a stranger: it is refused, and the command named that takes the state along. Pure.
 */
import { type BrokerForm, type InstallValues, formOf } from '../../../install/values.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { canMove } from './plan-move.ts'
import { readEtcdUrl } from './replica-options.ts'

const WORDS: Readonly<Record<BrokerForm, string>> = {
  own: 'one broker, with its state in a volume of its own',
  included: 'replicas, with their state in the etcd that was installed with them',
  given: 'replicas, with their state in an etcd that was given',
}

const ALONG = 'to take the state along, which stops the broker for a minute: the same command with --move'

export interface RefuseMoveInit {
  /** Of the cluster, for people. */
  readonly title: string
  readonly before: InstallValues
  readonly values: InstallValues
}

/** To be called where something is installed, or its data is there. Throws UserError. */
export function refuseMove({ title, before, values }: RefuseMoveInit): void {
  const [was, is] = [formOf(before), formOf(values)]
  if (was === is && (was !== 'given' || isSameStore(before, values))) return
  const isOther =
    was === is ? `another store: ${values.broker.etcd.url} instead of ${before.broker.etcd.url}` : WORDS[is]
  const [from, to] = [storeOf(before), storeOf(values)]
  const migrate = `sealane broker migrate --from ${from} --to ${to}`
  const fewer = was === 'own' || is !== 'own' ? '' : 'for fewer replicas on the same etcd say --replicas 2\n'
  throw new UserError(
    `${title} has a broker already: ${WORDS[was]}; this command asks for ${isOther}, which would start empty`,
    {
      hint:
        `${canMove({ before, values }) ? ALONG : `what moves the state of a stopped broker: ${migrate}`}\n${fewer}` +
        'nothing was changed',
    },
  )
}

/** As `broker migrate` takes it. */
function storeOf(values: InstallValues): string {
  return values.broker.store === 'sqlite' ? 'sqlite' : values.broker.etcd.url
}

/** Members of an etcd are replaced one by one, so that two lists of the same one have a member in common. */
function isSameStore(before: InstallValues, values: InstallValues): boolean {
  const [was, is] = [readEtcdUrl(before.broker.etcd.url), readEtcdUrl(values.broker.etcd.url)]
  return was.prefix === is.prefix && is.endpoints.some((one) => was.endpoints.includes(one))
}
