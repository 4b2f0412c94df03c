"""The SQL that finds the line of an input by its name."""

FIND = """
select seq from item_payload where batch_id = %(batch_id)s and reference = %(reference)s order by seq limit 1"""
