/** XFRM policies of forwarded packets: they drop packets independently of nftables. */
export {
  type ForwardPolicies,
  type ForwardPolicy,
  type ListedPolicy,
  checkPolicy,
  formatPolicy,
  formatPolicyDeletion,
  policyFamily,
} from './forward-policies.ts'
export { XfrmPolicies } from './xfrm-policies.ts'
