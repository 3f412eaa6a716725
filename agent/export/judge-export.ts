/** The condition Valid of a ServiceExport (KEP-1645 "Service Types"). Pure. */
import type { ConditionFinding } from '../../model/conditions.ts'
import { isDnsLabel } from '../../model/ids.ts'
import type { Service, ServiceExport } from '../../model/objects.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'

/** Takes the export and the Service of the same namespace and name, if there is one. */
export function judgeExport(object: ServiceExport, service: Service | undefined): ConditionFinding {
  const { namespace = '', name } = object.metadata
  const title = `Service ${namespace}/${name}`
  const finding = (status: 'True' | 'False', reason: ReasonCode, message: string): ConditionFinding => ({
    type: 'Valid',
    status,
    reason,
    message,
  })
  // A name that is no DNS label cannot be that of a Service that anyone could call.
  const wrong = [namespace, name].find((part) => !isDnsLabel(part))
  if (wrong !== undefined) {
    const limit = 'expected 1 to 63 of a-z, 0-9 and -'
    return finding('False', 'NoService', `${title} cannot have a DNS name: ${JSON.stringify(wrong)}: ${limit}`)
  }
  if (service === undefined || service.metadata.deletionTimestamp !== undefined) {
    return finding('False', 'NoService', `${title} does not exist`)
  }
  if (service.spec?.type === 'ExternalName') {
    return finding('False', 'InvalidServiceType', `${title} is of type ExternalName, which cannot be exported`)
  }
  return finding('True', 'Valid', `${title} can be exported`)
}
